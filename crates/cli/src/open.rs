//! The options every command takes, and opening a source with them.

use crate::{NOT_DONE, failure::Failure, progress::Bar, render::human};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};
use twinscope_formats::{Cache, Limits, OpenOptions, Progress, RawSpec};
use twinscope_tensor::{Listing, TensorInfo, TensorSource};

/// Unpacked data the cache may hold. A model of 7 billion parameters in bf16 takes 14 GB, so archives of those open
/// without a flag; whoever has larger ones knows how much disk they have.
const CACHE_SIZE: &str = "16G";

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Opening {
    /// Print one JSON document on stdout and nothing else
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Only tensors and values whose name matches; `*` also matches `.` and `/`. Repeat for more
    #[arg(long, global = true, value_name = "GLOB")]
    only: Vec<String>,
    /// Where compressed data is unpacked to [default: the user's cache folder]
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// How much may be unpacked there, like 500M or 8G
    #[arg(long, global = true, value_name = "SIZE", default_value = CACHE_SIZE, value_parser = human::parse_size)]
    cache_size: u64,
    /// How many times larger than its packed form data may become
    #[arg(long, global = true, value_name = "N", default_value_t = Limits::default().inflate_ratio)]
    max_ratio: u64,
    // In `help`, not in a doc comment: rustdoc would take the brackets for a link.
    #[arg(
        long,
        global = true,
        value_name = "SPEC",
        help = "Take the source as raw bytes of this dtype and shape, from this byte on, like 'f32[3,4]@0'"
    )]
    raw: Option<RawSpec>,
    /// Threads to work with [default: one for each core]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

/// An opened source and the part of it the user asked for.
pub(crate) struct Opened {
    pub(crate) source: Arc<dyn TensorSource>,
    only: Option<GlobSet>,
    bar: Arc<Bar>,
}

impl Opening {
    /// Sizes the pool that reads and measures; it is started when first used.
    pub(crate) fn use_threads(&self) -> anyhow::Result<()> {
        if let Some(threads) = self.threads {
            rayon::ThreadPoolBuilder::new()
                .num_threads(usize::from(threads))
                .build_global()?;
        }
        Ok(())
    }

    pub(crate) fn open(&self, path: &Path) -> anyhow::Result<Opened> {
        let only = self.globs()?;
        let bar = Arc::new(Bar::new());
        bar.watch(path.display().to_string());
        let source = twinscope_formats::open(
            path,
            &self.options(Some(Arc::clone(&bar) as Arc<dyn Progress>)),
        );
        bar.clear();
        Ok(Opened {
            source: source?.into(),
            only,
            bar,
        })
    }

    /// How sources are opened, wherever it is done.
    pub(crate) fn options(&self, progress: Option<Arc<dyn Progress>>) -> OpenOptions {
        let cache = match &self.cache_dir {
            Some(dir) => Cache::new(dir.clone(), self.cache_size),
            None => Cache::in_default_dir(self.cache_size),
        };
        let cache = progress.into_iter().fold(cache, Cache::with_progress);
        let limits = Limits {
            inflate_ratio: self.max_ratio,
            ..Limits::default()
        };
        OpenOptions {
            limits,
            cache: Arc::new(cache),
            raw: self.raw.clone(),
        }
    }

    /// A source that is in memory already.
    pub(crate) fn hold(&self, source: Arc<dyn TensorSource>) -> anyhow::Result<Opened> {
        Ok(Opened {
            source,
            only: self.globs()?,
            bar: Arc::new(Bar::new()),
        })
    }

    /// `--only` as it was given.
    pub(crate) fn only(&self) -> &[String] {
        &self.only
    }

    fn globs(&self) -> anyhow::Result<Option<GlobSet>> {
        if self.only.is_empty() {
            return Ok(None);
        }
        let mut set = GlobSetBuilder::new();
        for pattern in &self.only {
            let glob = GlobBuilder::new(pattern)
                .literal_separator(false)
                .build()
                .map_err(|error| {
                    Failure::new(format!("--only `{pattern}`: {}", error.kind()))
                        .hint("write `[[]` for a bracket that is part of the name")
                })?;
            set.add(glob);
        }
        Ok(Some(set.build()?))
    }
}

impl Opened {
    pub(crate) fn listing(&self) -> &Listing {
        self.source.listing()
    }

    /// Takes the progress bar away; called when everything is read and printing begins.
    pub(crate) fn all_read(&self) {
        self.bar.clear();
    }

    /// Whether `--only` lets this name through.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.is_match(name))
    }

    /// The tensors asked for, with their places in the listing.
    pub(crate) fn tensors(&self) -> Vec<usize> {
        let listing = self.listing();
        (0..listing.tensors.len())
            .filter(|index| self.wants(&listing.tensors[*index].name))
            .collect()
    }

    pub(crate) fn info(&self, index: usize) -> &TensorInfo {
        &self.listing().tensors[index]
    }

    /// 2 when nothing could be read or something was attempted, else 0. An empty dict was read.
    pub(crate) fn exit_code(&self) -> u8 {
        let listing = self.listing();
        let nothing = listing.tensors.is_empty() && listing.values.is_empty();
        let trouble = !listing.skipped.is_empty() || !listing.findings.is_empty();
        let attack = listing
            .findings
            .iter()
            .any(|finding| finding.kind.is_attack());
        if attack || (nothing && trouble) {
            NOT_DONE
        } else {
            0
        }
    }

    /// A pattern that lets nothing through is more often a slip than a question.
    pub(crate) fn warn_if_nothing_matches(&self, found: usize) {
        if self.only.is_some() && found == 0 {
            let mut to = std::io::stderr().lock();
            let _ = writeln!(
                to,
                "warning: --only matches none of {}",
                human::count(self.listing().tensors.len(), "tensor")
            );
        }
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({:?})", self.listing().source)
    }
}
