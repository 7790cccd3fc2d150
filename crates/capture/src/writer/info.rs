//! What ran: `run.json` and `rank.json`.

use crate::CaptureError;
use serde_json::{Map, Value, json};
use std::{
    env, fs,
    hash::{BuildHasher, Hasher, RandomState},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// The version of the format that this crate writes.
pub(super) const VERSION: u64 = 1;

/// Which process of how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    pub number: u64,
    pub world_size: Option<u64>,
    /// Its place in the mesh: `tp` 0, `pp` 1.
    pub coords: Vec<(String, u64)>,
    pub device: Option<String>,
}

impl Rank {
    /// One process of one.
    pub fn single() -> Self {
        Self {
            world_size: Some(1),
            ..Self::default()
        }
    }

    pub fn new(number: u64, world_size: u64) -> Self {
        Self {
            number,
            world_size: Some(world_size),
            ..Self::default()
        }
    }

    /// What `torchrun`, SLURM and Open MPI tell their processes: `RANK` and `WORLD_SIZE`, or their own names for it. A single process when nobody does.
    pub fn from_env() -> Result<Self, CaptureError> {
        let number = first_number(&["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])?;
        let size = first_number(&[
            "WORLD_SIZE",
            "SLURM_NTASKS",
            "OMPI_COMM_WORLD_SIZE",
            "PMI_SIZE",
        ])?;
        Ok(match number {
            Some(number) => Self {
                number,
                world_size: size,
                ..Self::default()
            },
            None => Self::single(),
        })
    }
}

fn first_number(names: &[&str]) -> Result<Option<u64>, CaptureError> {
    for name in names {
        if let Ok(value) = env::var(name) {
            // Five digits name the folder; more is no rank but an accident.
            let number = value.trim().parse().ok().filter(|number| *number <= 99_999);
            return number.map(Some).ok_or_else(|| CaptureError::Rank {
                name: (*name).to_owned(),
                value,
            });
        }
    }
    Ok(None)
}

/// About the run as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunInfo {
    pub label: Option<String>,
    /// Its name and version: `candle`, `0.11.1`.
    pub framework: Option<(String, String)>,
    pub model: Option<String>,
    pub git: Option<String>,
    pub mesh: Vec<(String, u64)>,
    /// Anything else worth keeping: prompt, seed, settings. A key of the format is not overwritten.
    pub more: Map<String, Value>,
}

impl RunInfo {
    pub(super) fn write(&self, run: &Path, rank: &Rank) -> Result<(), CaptureError> {
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos() as u64;
        let mut about = json!({
            "format": "twinscope-run",
            "version": VERSION,
            "run_id": random_id(),
            "created_ns": created,
            "producer": concat!("twinscope-capture ", env!("CARGO_PKG_VERSION")),
            "argv": env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>(),
            "host": host(),
            "machine": {
                "os": env::consts::OS,
                "arch": env::consts::ARCH,
                "cores": std::thread::available_parallelism().ok().map(usize::from),
            },
        });
        let fields = about.as_object_mut().expect("an object was just written");
        let mut maybe = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(key.to_owned(), value);
            }
        };
        maybe("label", self.label.as_deref().map(Value::from));
        maybe(
            "framework",
            self.framework
                .as_ref()
                .map(|(name, version)| json!({"name": name, "version": version})),
        );
        maybe("model", self.model.as_deref().map(Value::from));
        maybe("git", self.git.as_deref().map(Value::from));
        maybe("world_size", rank.world_size.map(Value::from));
        maybe("mesh", (!self.mesh.is_empty()).then(|| pairs(&self.mesh)));
        for (key, value) in &self.more {
            fields.entry(key.as_str()).or_insert_with(|| value.clone());
        }
        write_whole(&run.join("run.json"), &about)
    }
}

impl Rank {
    pub(super) fn write(&self, folder: &Path) -> Result<(), CaptureError> {
        let mut about = json!({"rank": self.number, "pid": std::process::id(), "host": host()});
        let fields = about.as_object_mut().expect("an object was just written");
        if !self.coords.is_empty() {
            fields.insert("coords".to_owned(), pairs(&self.coords));
        }
        if let Some(device) = &self.device {
            fields.insert("device".to_owned(), device.as_str().into());
        }
        write_whole(&folder.join("rank.json"), &about)
    }
}

fn pairs(pairs: &[(String, u64)]) -> Value {
    Value::Object(
        pairs
            .iter()
            .map(|(key, value)| (key.clone(), (*value).into()))
            .collect(),
    )
}

/// Under another name first: a reader sees the whole file or none.
fn write_whole(path: &Path, value: &Value) -> Result<(), CaptureError> {
    let text = format!("{value}\n");
    let draft = path.with_extension(format!("json.{}", std::process::id()));
    fs::write(&draft, &text)
        .and_then(|()| fs::rename(&draft, path))
        .map_err(|error| CaptureError::io(path, &error, text.len() as u64))
}

fn host() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| env::var("HOSTNAME").ok())?;
    Some(name.trim().to_owned())
}

/// 128 bits that no other run has, in the form of a UUID (version 4).
fn random_id() -> String {
    // std seeds each RandomState from the operating system.
    let word = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u128(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_nanos(),
        );
        hasher.write_u32(std::process::id());
        hasher.finish()
    };
    let (high, low) = (word() & !0xf000 | 0x4000, word() & !(3 << 62) | 1 << 63);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
