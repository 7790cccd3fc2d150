//! Archives: their directories, read in place. Nothing is ever extracted to a path; a member is a range of bytes.

pub(crate) mod gzip;
pub(crate) mod tar;
pub(crate) mod zip;
pub(crate) mod zip_directory;
pub(crate) mod zstd;

use crate::{
    OpenError,
    contents::Contents,
    error::Fault,
    input::{Context, Input},
    names, open,
};
use twinscope_tensor::Bytes;

/// Reads what a compressed file holds. `tar` is what a tar inside it is called.
fn read_unpacked(
    input: &Input,
    context: &Context,
    unpack: fn(&Input, &Context) -> Result<Bytes, Fault>,
    tar: &'static str,
) -> Result<Contents, Fault> {
    let bytes = unpack(input, context)?;
    input.bytes.check().map_err(|e| Fault::Truncated {
        what: e.to_string(),
    })?;
    let inner = Input {
        name: inner_name(&input.name),
        path: None,
        bytes,
    };
    // A compressed archive is one archive; compression inside compression counts as another.
    let again = gzip::recognise(&inner) || zstd::recognise(&inner);
    let inside = if again {
        context.inside()?
    } else {
        context.clone()
    };
    let mut contents = open::read(&inner, &inside).map_err(|error| match error {
        OpenError::Malformed { fault, .. } => fault,
        OpenError::Unrecognised { found, .. } => Fault::Unsupported {
            what: format!("inside is no tensor file but {found}"),
        },
        other => Fault::Io {
            what: other.to_string(),
        },
    })?;
    if contents.format == tar::FORMAT {
        contents.format = tar;
    }
    Ok(contents)
}

/// What a compressed file is called without its compression.
fn inner_name(name: &str) -> String {
    match names::extension(name).as_str() {
        "tgz" | "tzst" | "taz" => format!("{}.tar", &name[..name.rfind('.').unwrap_or(name.len())]),
        "gz" | "zst" | "zstd" | "gzip" => name[..name.rfind('.').unwrap_or(name.len())].to_owned(),
        _ => name.to_owned(),
    }
}
