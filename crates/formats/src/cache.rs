//! Where packed data is unpacked to: memory for a little, spill files in one folder for the rest, bounded.
//!
//! A spill file has no name (`O_TMPFILE`, or unlinked the moment it is made), so nothing is ever left behind: not at
//! exit, not after a crash, not after `kill -9`. There is nothing to clean up and no lock to hold. Its blocks are
//! reserved before it is mapped, so a full disk is a message and not a SIGBUS. Results of up to 1 MiB stay in memory
//! while they are few, then share spill files; larger ones have a file each. What can be made again is remembered and
//! forgotten, oldest first, when the cache is full.

use crate::{
    Limits,
    error::Fault,
    progress::{Progress, Ticker},
};
use std::{
    cell::Cell,
    collections::HashMap,
    fmt,
    fs::File,
    io::{self, Read, Write},
    ops::Range,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use twinscope_tensor::{Bytes, Shrunk, Storage};

/// The largest result that may stay in memory, and that shares a spill file when it may not.
const SMALL: u64 = 1 << 20;
/// What all small results in memory may take together.
const MEMORY: u64 = 16 << 20;
/// A spill file that small results share.
const SHARED: u64 = 16 << 20;

/// Unpacked data, bounded.
pub struct Cache {
    dir: PathBuf,
    /// Whether the temporary folder will do when `dir` cannot be made: nobody chose `dir`.
    fallback: bool,
    size: u64,
    progress: Option<Arc<dyn Progress>>,
    spilled: Arc<AtomicU64>,
    in_memory: Arc<AtomicU64>,
    shared: Mutex<Option<Arc<SharedSpill>>>,
    memo: Mutex<Memo>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("dir", &self.dir)
            .field("size", &self.size)
            .field("spilled", &self.spilled)
            .finish_non_exhaustive()
    }
}

impl Cache {
    /// A cache below `dir` (made when first used) that holds at most `size` bytes.
    pub fn new(dir: PathBuf, size: u64) -> Self {
        Self {
            dir,
            fallback: false,
            size,
            progress: None,
            spilled: Arc::default(),
            in_memory: Arc::default(),
            shared: Mutex::default(),
            memo: Mutex::default(),
        }
    }

    /// A cache in the user's cache folder, or in the temporary folder when there is none.
    pub fn in_default_dir(size: u64) -> Self {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base =
            absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        let dir = base.unwrap_or_else(std::env::temp_dir).join("twinscope");
        Self {
            fallback: true,
            ..Self::new(dir, size)
        }
    }

    /// Tells `progress` how unpacking goes.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<dyn Progress>) -> Self {
        self.progress = Some(progress);
        self
    }

    /// `len` bytes written by `fill`: in memory when small, in a mapped spill file when not. `fill` gets a writer that
    /// fails past `len`. Fails when the cache is full.
    pub(crate) fn make(
        &self,
        what: &str,
        len: u64,
        fill: &mut dyn FnMut(&mut dyn Write) -> Result<(), Fault>,
    ) -> Result<Bytes, Fault> {
        self.make_slice(what, len, &mut |buffer| {
            let promised = buffer.len();
            let mut window = Window {
                left: buffer,
                ticker: Ticker::new(self.progress.clone(), what, Some(len)),
            };
            fill(&mut window)?;
            match window.left.len() {
                0 => Ok(()),
                missing => Err(Fault::SizeMismatch {
                    what: format!(
                        "`{what}` gave {} bytes, {promised} were promised",
                        promised - missing
                    ),
                }),
            }
        })
    }

    /// The same, with all `len` bytes (zeros) handed out at once.
    pub(crate) fn make_slice(
        &self,
        what: &str,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Fault>,
    ) -> Result<Bytes, Fault> {
        self.make_storage(what, len, fill).map(Bytes::new)
    }

    fn make_storage(
        &self,
        what: &str,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Fault>,
    ) -> Result<Arc<dyn Storage>, Fault> {
        if len > SMALL {
            let held = self.reserve(what, len)?;
            let file = self.spill_file(what, len)?;
            // SAFETY: the file has no name, so nobody else can change or shorten it; its blocks are reserved.
            let mut map = unsafe { memmap2::MmapOptions::new().len(len as usize).map_mut(&file) }
                .map_err(|e| unreadable(what, &e))?;
            fill(&mut map)?;
            let map = map.make_read_only().map_err(|e| unreadable(what, &e))?;
            return Ok(Arc::new(Spill { map, _held: held }));
        }
        let mut buffer = vec![0; len as usize];
        fill(&mut buffer)?;
        self.keep_small(what, buffer)
    }

    /// A deflate stream (no zlib or gzip header) unpacked to exactly `len` bytes; refused when it ends early or late.
    /// Checks `Limits::inflate_free` and `inflate_ratio` first.
    pub(crate) fn inflate(
        &self,
        what: &str,
        packed: &Bytes,
        len: u64,
        limits: &Limits,
    ) -> Result<Bytes, Fault> {
        check_ratio(what, packed.len() as u64, len, limits)?;
        let key = (packed.as_ptr() as usize, packed.len());
        if let Some(bytes) = self.memo().get(key, len) {
            return Ok(bytes);
        }
        let unpacked = self.make_storage(what, len, &mut |out| {
            if let Some(progress) = &self.progress
                && len > 64 << 20
            {
                progress.unpacking(what, 0, Some(len));
            }
            inflate_exactly(what, packed, out)
        })?;
        // A map that was cut short gave zeros, and zeros are not what the file said.
        packed.check().map_err(|e| Fault::Truncated {
            what: e.to_string(),
        })?;
        self.memo().put(key, packed.clone(), Arc::clone(&unpacked));
        Ok(Bytes::new(unpacked))
    }

    /// Everything `reader` gives, up to `bound` bytes (a stream's length is known when it ends).
    pub(crate) fn stream(
        &self,
        what: &str,
        reader: &mut dyn Read,
        bound: &Bound<'_>,
    ) -> Result<Bytes, Fault> {
        let mut ticker = Ticker::new(self.progress.clone(), what, None);
        let mut first = Vec::new();
        reader
            .take(SMALL + 1)
            .read_to_end(&mut first)
            .map_err(|e| broken(what, &e))?;
        ticker.add(first.len() as u64);
        bound.check(what, first.len() as u64)?;
        if first.len() as u64 <= SMALL {
            return self.keep_small(what, first).map(Bytes::new);
        }
        let file = self.unnamed().map_err(|e| unreadable(what, &e))?;
        let mut held = Vec::new();
        let (mut len, mut room) = (0, 0);
        let mut chunk = first;
        let mut buffer = vec![0; 256 << 10];
        loop {
            len += chunk.len() as u64;
            bound.check(what, len)?;
            while room < len {
                // A bit at a time: how much is coming nobody knows.
                held.push(self.reserve(what, SHARED.min(bound.most - room))?);
                room += SHARED.min(bound.most - room);
            }
            // Zeros are left out of the file, which then has a hole: the usual bomb costs no disk.
            if chunk.iter().any(|byte| *byte != 0) {
                file.write_all_at(&chunk, len - chunk.len() as u64)
                    .map_err(|e| unreadable(what, &e))?;
            }
            let got = read_some(reader, &mut buffer).map_err(|e| broken(what, &e))?;
            if got == 0 {
                break;
            }
            ticker.add(got as u64);
            chunk.clear();
            chunk.extend_from_slice(&buffer[..got]);
        }
        file.set_len(len).map_err(|e| unreadable(what, &e))?;
        // SAFETY: the file has no name, so nobody else can change or shorten it; it is only read, so holes need no room.
        let map = unsafe { memmap2::MmapOptions::new().len(len as usize).map(&file) }
            .map_err(|e| unreadable(what, &e))?;
        Ok(Bytes::new(Arc::new(Spill { map, _held: held })))
    }

    fn memo(&self) -> MutexGuard<'_, Memo> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for `bytes` in spill files, making some by forgetting what can be made again.
    fn reserve(&self, what: &str, bytes: u64) -> Result<Held, Fault> {
        loop {
            if let Some(held) = Held::try_new(&self.spilled, bytes, self.size) {
                return Ok(held);
            }
            if !self.memo().forget_oldest() {
                let used = self.spilled.load(Ordering::Relaxed);
                return Err(Fault::Limit {
                    what: format!(
                        "unpacking `{what}` takes {bytes} bytes, the cache holds {} and {used} are in use",
                        self.size
                    ),
                });
            }
        }
    }

    fn keep_small(&self, what: &str, mut buffer: Vec<u8>) -> Result<Arc<dyn Storage>, Fault> {
        if let Some(held) = Held::try_new(&self.in_memory, buffer.len() as u64, MEMORY) {
            buffer.shrink_to_fit();
            return Ok(Arc::new(Small {
                bytes: buffer,
                _held: held,
            }));
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spill) = &*shared
            && let Some(piece) =
                SharedSpill::add(spill, &buffer).map_err(|e| unreadable(what, &e))?
        {
            return Ok(piece);
        }
        let held = self.reserve(what, SHARED)?;
        let file = self.spill_file(what, SHARED)?;
        // SAFETY: the file has no name and a fixed length; pieces are written once, before anybody can see them.
        let map = unsafe { memmap2::MmapOptions::new().len(SHARED as usize).map(&file) }
            .map_err(|e| unreadable(what, &e))?;
        let spill = Arc::new(SharedSpill {
            file,
            map,
            used: AtomicU64::new(0),
            _held: held,
        });
        let piece = SharedSpill::add(&spill, &buffer).map_err(|e| unreadable(what, &e))?;
        *shared = Some(spill);
        piece.ok_or_else(|| Fault::Limit {
            what: format!("`{what}` does not fit a spill file"),
        })
    }

    /// A file of `len` bytes whose blocks are really there.
    fn spill_file(&self, what: &str, len: u64) -> Result<File, Fault> {
        let file = self.unnamed().map_err(|e| unreadable(what, &e))?;
        let signed = i64::try_from(len).map_err(|_| Fault::Overflow {
            what: format!("`{what}` has {len} bytes"),
        })?;
        // SAFETY: a plain call on a descriptor of our own.
        let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, signed) };
        match code {
            0 => Ok(file),
            libc::EOPNOTSUPP | libc::EINVAL => {
                let zeros = vec![0; 1 << 20];
                let mut at = 0;
                while at < len {
                    let count = (len - at).min(zeros.len() as u64);
                    file.write_all_at(&zeros[..count as usize], at)
                        .map_err(|e| unreadable(what, &e))?;
                    at += count;
                }
                Ok(file)
            }
            code => Err(Fault::Io {
                what: format!(
                    "no room for {len} bytes of `{what}` in `{}`: {}",
                    self.dir.display(),
                    io::Error::from_raw_os_error(code)
                ),
            }),
        }
    }

    fn unnamed(&self) -> io::Result<File> {
        let made =
            std::fs::create_dir_all(&self.dir).and_then(|()| tempfile::tempfile_in(&self.dir));
        match made {
            Err(_) if self.fallback => tempfile::tempfile(),
            Err(e) => Err(io::Error::new(
                e.kind(),
                format!("the cache folder `{}`: {e}", self.dir.display()),
            )),
            Ok(file) => Ok(file),
        }
    }
}

/// How much a stream may give.
#[derive(Clone, Debug)]
pub(crate) struct Bound<'a> {
    most: u64,
    /// What it is unpacked from; `None` for data that is not packed.
    packed: Option<&'a Counted<'a>>,
    ratio: u64,
}

/// From here on a stream is judged by what it has given so far, not only by what it gives in the end: whoever starts
/// with this much of nothing is a bomb, and writing it all out would take minutes.
const JUDGED: u64 = 256 << 20;

impl<'a> Bound<'a> {
    /// Data packed in `packed`, which counts what is read of it.
    pub(crate) fn packed(packed: &'a Counted<'a>, limits: &Limits) -> Self {
        let most = limits
            .inflate_free
            .max((packed.bytes.len() as u64).saturating_mul(limits.inflate_ratio));
        Self {
            most,
            packed: Some(packed),
            ratio: limits.inflate_ratio,
        }
    }

    /// And never more than `most`.
    pub(crate) fn capped(self, most: u64) -> Self {
        Self {
            most: self.most.min(most),
            ..self
        }
    }

    /// As much as the cache has room for.
    pub(crate) fn none() -> Self {
        Self {
            most: u64::MAX,
            packed: None,
            ratio: 1,
        }
    }

    fn check(&self, what: &str, len: u64) -> Result<(), Fault> {
        let Some(packed) = self.packed else {
            return Ok(());
        };
        if len > self.most {
            return Err(bomb(
                what,
                packed.bytes.len() as u64,
                self.ratio,
                format_args!("more than {}", self.most),
            ));
        }
        let used = packed.used.get();
        if len > JUDGED && len > used.saturating_mul(self.ratio) {
            return Err(bomb(
                what,
                used,
                self.ratio,
                format_args!("{len} and goes on"),
            ));
        }
        Ok(())
    }
}

/// Packed bytes that know how many of them were read.
#[derive(Debug)]
pub(crate) struct Counted<'a> {
    bytes: &'a [u8],
    used: Cell<u64>,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            used: Cell::new(0),
        }
    }

    /// What was not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.used.get() as usize..]
    }

    pub(crate) fn skip(&self, bytes: usize) -> Option<()> {
        self.rest().get(bytes..)?;
        self.used.set(self.used.get() + bytes as u64);
        Some(())
    }
}

impl Read for &Counted<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.rest().read(out)?;
        self.used.set(self.used.get() + got as u64);
        Ok(got)
    }
}

fn bomb(what: &str, packed: u64, ratio: u64, len: fmt::Arguments<'_>) -> Fault {
    Fault::Bomb {
        what: format!("`{what}` unpacks {packed} bytes to {len}, over {ratio} times as many"),
    }
}

pub(crate) fn check_ratio(what: &str, packed: u64, len: u64, limits: &Limits) -> Result<(), Fault> {
    if len > limits.inflate_free && len > packed.saturating_mul(limits.inflate_ratio) {
        return Err(bomb(
            what,
            packed,
            limits.inflate_ratio,
            format_args!("{len}"),
        ));
    }
    Ok(())
}

fn inflate_exactly(what: &str, packed: &[u8], out: &mut [u8]) -> Result<(), Fault> {
    use libdeflater::DecompressionError::{BadData, InsufficientSpace};
    match libdeflater::Decompressor::new().deflate_decompress(packed, out) {
        Ok(got) if got == out.len() => Ok(()),
        Ok(got) => Err(Fault::CorruptArchive {
            what: format!(
                "`{what}` unpacks to {got} bytes, {} were promised",
                out.len()
            ),
        }),
        Err(InsufficientSpace) => Err(Fault::CorruptArchive {
            what: format!(
                "`{what}` unpacks to more than the {} bytes promised",
                out.len()
            ),
        }),
        Err(BadData) => Err(Fault::CorruptArchive {
            what: format!("`{what}` is not a deflate stream"),
        }),
    }
}

fn unreadable(what: &str, error: &io::Error) -> Fault {
    Fault::Io {
        what: format!("cannot unpack `{what}`: {error}"),
    }
}

fn broken(what: &str, error: &io::Error) -> Fault {
    Fault::CorruptArchive {
        what: format!("`{what}`: {error}"),
    }
}

fn read_some(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// A writer into a slice that knows where it ends.
struct Window<'a> {
    left: &'a mut [u8],
    ticker: Ticker<'a>,
}

impl Write for Window<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.left.len() {
            return Err(io::Error::other(format!(
                "{} bytes more than promised",
                bytes.len() - self.left.len()
            )));
        }
        let (now, later) = std::mem::take(&mut self.left).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        self.left = later;
        self.ticker.add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes counted in a ledger until this is dropped.
struct Held {
    ledger: Arc<AtomicU64>,
    bytes: u64,
}

impl Held {
    fn try_new(ledger: &Arc<AtomicU64>, bytes: u64, most: u64) -> Option<Self> {
        ledger
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= most)
            })
            .ok()
            .map(|_| Self {
                ledger: Arc::clone(ledger),
                bytes,
            })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ledger.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A small result in memory.
struct Small {
    bytes: Vec<u8>,
    _held: Held,
}

/// A result with a spill file of its own.
struct Spill<H> {
    map: memmap2::Mmap,
    _held: H,
}

/// A spill file that small results share; gone when the last of them is.
struct SharedSpill {
    file: File,
    map: memmap2::Mmap,
    used: AtomicU64,
    _held: Held,
}

impl SharedSpill {
    /// Appends `bytes`, or `None` when they do not fit any more. Called under the cache's lock only.
    fn add(spill: &Arc<Self>, bytes: &[u8]) -> io::Result<Option<Arc<dyn Storage>>> {
        let start = spill.used.load(Ordering::Relaxed);
        let end = start + bytes.len() as u64;
        if end > SHARED {
            return Ok(None);
        }
        spill.file.write_all_at(bytes, start)?;
        // Readers cast to wider types where they can: keep them aligned.
        spill
            .used
            .store(end.next_multiple_of(64), Ordering::Relaxed);
        Ok(Some(Arc::new(Piece {
            spill: Arc::clone(spill),
            range: start as usize..end as usize,
        })))
    }
}

struct Piece {
    spill: Arc<SharedSpill>,
    range: Range<usize>,
}

macro_rules! never_shrinks {
    ($($type:ty { $($generic:tt)* } => |$self:ident| $bytes:expr;)*) => {$(
        impl<$($generic)*> Storage for $type {
            fn bytes(&$self) -> &[u8] {
                $bytes
            }

            fn check(&self) -> Result<(), Shrunk> {
                Ok(())
            }
        }
    )*};
}
never_shrinks! {
    Small {} => |self| &self.bytes;
    Spill<H> { H: Send + Sync } => |self| &self.map;
    Piece {} => |self| &self.spill.map[self.range.clone()];
}

/// Results that can be made again, by where their packed form lies. The packed bytes are kept alive with them, so an
/// address cannot come to mean something else.
#[derive(Default)]
struct Memo {
    entries: HashMap<(usize, usize), Remembered>,
    clock: u64,
}

struct Remembered {
    _packed: Bytes,
    unpacked: Arc<dyn Storage>,
    used: u64,
}

impl Memo {
    fn get(&mut self, key: (usize, usize), len: u64) -> Option<Bytes> {
        self.clock += 1;
        let entry = self
            .entries
            .get_mut(&key)
            .filter(|entry| entry.unpacked.bytes().len() as u64 == len)?;
        entry.used = self.clock;
        Some(Bytes::new(Arc::clone(&entry.unpacked)))
    }

    fn put(&mut self, key: (usize, usize), packed: Bytes, unpacked: Arc<dyn Storage>) {
        self.clock += 1;
        self.entries.insert(
            key,
            Remembered {
                _packed: packed,
                unpacked,
                used: self.clock,
            },
        );
    }

    /// Of those nobody uses: forgetting the others gives no room and makes them be unpacked twice.
    fn forget_oldest(&mut self) -> bool {
        let idle = self
            .entries
            .iter()
            .filter(|(_, entry)| Arc::strong_count(&entry.unpacked) == 1);
        let oldest = idle
            .min_by_key(|(_, entry)| entry.used)
            .map(|(key, _)| *key);
        oldest.and_then(|key| self.entries.remove(&key)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deflate(bytes: &[u8]) -> Bytes {
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap().into()
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8 & 0x3f
            })
            .collect()
    }

    fn cache(size: u64) -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().join("cache"), size);
        (dir, cache)
    }

    #[test]
    fn spill_files_leave_nothing_in_the_folder_even_while_in_use() {
        let (dir, cache) = cache(1 << 30);
        let data = noise(3 << 20);
        let bytes = cache
            .inflate("x", &deflate(&data), data.len() as u64, &Limits::default())
            .unwrap();
        assert_eq!(*bytes, *data);
        assert_eq!(
            std::fs::read_dir(dir.path().join("cache")).unwrap().count(),
            0,
            "so kill -9 leaves nothing either"
        );
    }

    #[test]
    fn what_was_unpacked_is_remembered_and_forgotten_when_room_is_needed() {
        let (_dir, cache) = cache(5 << 20);
        let (a, b) = (noise(3 << 20), noise((3 << 20) + 1));
        let (packed_a, packed_b) = (deflate(&a), deflate(&b));
        let limits = Limits::default();
        let first = cache
            .inflate("a", &packed_a, a.len() as u64, &limits)
            .unwrap();
        assert!(
            first.same_place(
                &cache
                    .inflate("a", &packed_a, a.len() as u64, &limits)
                    .unwrap()
            )
        );
        // In use: it cannot make room.
        let full = cache
            .inflate("b", &packed_b, b.len() as u64, &limits)
            .unwrap_err();
        assert!(
            matches!(&full, Fault::Limit { what } if what.contains("`b` takes 3145729 bytes, the cache holds 5242880")),
            "{full}"
        );
        let first_again = cache
            .inflate("a", &packed_a, a.len() as u64, &limits)
            .unwrap();
        drop((first, first_again));
        assert_eq!(
            *cache
                .inflate("b", &packed_b, b.len() as u64, &limits)
                .unwrap(),
            *b
        );
    }

    #[test]
    fn a_bomb_is_refused_before_anything_is_allocated() {
        let (dir, cache) = cache(u64::MAX);
        let fault = cache
            .inflate("x", &deflate(&[0; 100]), 1 << 50, &Limits::default())
            .unwrap_err();
        assert!(
            matches!(&fault, Fault::Bomb { what } if what.contains("1125899906842624")),
            "{fault}"
        );
        assert!(!dir.path().join("cache").exists());
        let mut zeros = io::repeat(0);
        let limits = Limits {
            inflate_free: 4 << 20,
            ..Limits::default()
        };
        let fault = cache
            .stream(
                "z",
                &mut zeros,
                &Bound::packed(&Counted::new(&[0; 10]), &limits),
            )
            .unwrap_err();
        assert!(matches!(fault, Fault::Bomb { .. }), "{fault}");
    }

    #[test]
    fn a_stream_that_ends_early_or_late_is_refused() {
        let (_dir, cache) = cache(1 << 30);
        let packed = deflate(&[5; 1000]);
        for len in [999, 1001] {
            let fault = cache
                .inflate("x", &packed, len, &Limits::default())
                .unwrap_err();
            assert!(matches!(fault, Fault::CorruptArchive { .. }), "{fault}");
        }
        let fault = cache
            .make("y", 10, &mut |out| {
                out.write_all(&[0; 9]).map_err(|e| Fault::Io {
                    what: e.to_string(),
                })
            })
            .unwrap_err();
        assert!(matches!(fault, Fault::SizeMismatch { .. }), "{fault}");
        let fault = cache
            .make("y", 10, &mut |out| {
                out.write_all(&[0; 11]).map_err(|e| Fault::Io {
                    what: e.to_string(),
                })
            })
            .unwrap_err();
        assert!(matches!(fault, Fault::Io { .. }), "{fault}");
    }

    #[test]
    fn endless_input_stops_when_the_cache_is_full() {
        let (_dir, cache) = cache(40 << 20);
        let fault = cache
            .stream("stdin", &mut io::repeat(1), &Bound::none())
            .unwrap_err();
        assert!(matches!(fault, Fault::Limit { .. }), "{fault}");
        assert_eq!(
            cache.spilled.load(Ordering::Relaxed),
            0,
            "and what was held is given back"
        );
    }

    #[test]
    fn many_small_results_do_not_fill_the_memory() {
        let (_dir, cache) = cache(1 << 30);
        let all: Vec<Bytes> = (0..64u8)
            .map(|i| Bytes::new(cache.keep_small("x", vec![i; 1 << 20]).unwrap()))
            .collect();
        assert!(cache.in_memory.load(Ordering::Relaxed) <= MEMORY);
        assert!(
            all.iter()
                .enumerate()
                .all(|(i, bytes)| bytes.len() == 1 << 20
                    && bytes.iter().all(|b| usize::from(*b) == i))
        );
        drop(all);
        assert_eq!(cache.in_memory.load(Ordering::Relaxed), 0);
        assert!(
            cache.spilled.load(Ordering::Relaxed) <= SHARED,
            "all but the one being filled are gone"
        );
    }
}
