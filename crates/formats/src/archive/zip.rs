//! A zip of tensor files: stored members are read in place, deflated ones unpacked into the cache to be listed.

use super::zip_directory::{self, Method, ZipEntry};
use crate::{
    bundle::{self, Load, Member},
    contents::Contents,
    error::Fault,
    input::{Context, Input},
};
use std::sync::Arc;

pub(crate) const FORMAT: &str = "zip";

/// Any zip. Formats that are zips of their own kind (torch, npz, keras) stand before this one in the table.
pub(crate) fn recognise(input: &Input) -> bool {
    input.bytes.starts_with(b"PK\x03\x04") || input.bytes.starts_with(b"PK\x05\x06")
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let entries = zip_directory::list(&input.bytes)?;
    let inside = context.inside()?;
    let archive = Arc::new(input.bytes.clone());
    let members = entries
        .into_iter()
        .filter(|entry| !entry.is_folder())
        .map(|entry| {
            let path = entry.name.clone();
            if !bundle::worth_reading(&path) {
                return Member {
                    path,
                    load: Load::Not,
                };
            }
            let load = match affordable(&entry, &inside) {
                Err(fault) => Load::Fault(fault),
                Ok(()) => Load::Zip {
                    entry: Box::new(entry),
                    archive: Arc::clone(&archive),
                },
            };
            Member { path, load }
        })
        .collect();
    bundle::assemble(FORMAT, members, &inside)
}

/// In the order of the directory, so that the same members are refused every time.
fn affordable(entry: &ZipEntry, context: &Context) -> Result<(), Fault> {
    if let Some(fault) = &entry.fault {
        return Err(fault.clone());
    }
    match entry.method {
        Method::Deflated => context.budget.take(&entry.name, entry.unpacked_len),
        Method::Stored | Method::Other(_) => Ok(()),
    }
}
