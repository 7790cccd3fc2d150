//! HDF5 and Keras: groups of datasets; `.keras` is a stored zip with one such file inside.
//!
//! The `hdf5-reader` crate parses the structures; the walk over links is ours, so one broken object costs one name. Contiguous
//! datasets are mapped in place. Chunked, packed and never written ones are brought up when read. Links and raw data that
//! lie in other files are never followed.

use crate::{
    Cache, Limits,
    archive::zip_directory,
    contents::{Contents, Data, Entry, Lazy},
    error::Fault,
    input::{Context, Input},
};
use hdf5_reader::{
    ByteOrder, Dataset, DatasetChunk, Datatype, FilterRegistry, Hdf5File, OpenOptions, StringSize,
    btree_v1, btree_v2,
    error::Error,
    fractal_heap::{FractalHeap, FractalHeapDirectBlockCache},
    io::Cursor,
    local_heap::LocalHeap,
    messages::{
        HdfMessage,
        dataspace::{DataspaceMessage, DataspaceType},
        filter_pipeline::FilterDescription,
        layout::DataLayout,
        link::{self, LinkTarget},
        link_info::LinkInfoMessage,
        symbol_table_msg::SymbolTableMessage,
    },
    object_header::ObjectHeader,
    symbol_table::SymbolTableNode,
};
use std::{
    cell::Cell,
    collections::HashMap,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Once},
};
use twinscope_tensor::{Bytes, DType, FindingKind, Meta, Plain, ReadError, Shape, View};

const MAGIC: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Groups in groups.
const MAX_DEPTH: usize = 128;
/// Links followed on the way to one object.
const MAX_HOPS: usize = 64;
/// What names may take beyond what the file's size earns: hard links can make a tree of any size out of a few groups.
const FREE_LISTING: u64 = 16 << 20;
/// What a dataset may unpack to without its file being large enough to justify it.
const FREE_UNPACKING: u64 = 16 << 20;
/// h5py's LZF filter.
const LZF: u16 = 32000;

pub(crate) fn recognise(input: &Input) -> bool {
    // A user block of 512, 1024, 2048, ... bytes may come first.
    let starts = std::iter::once(0).chain((9..32).map(|power| 1usize << power));
    starts
        .take_while(|start| *start < input.bytes.len())
        .any(|start| input.bytes[start..].starts_with(MAGIC))
}

pub(crate) fn recognise_keras(input: &Input) -> bool {
    input.extension() == "keras" && input.bytes.starts_with(b"PK\x03\x04")
}

pub(crate) fn read_keras(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let entries = zip_directory::list(&input.bytes)?;
    let weights = entries
        .iter()
        .find(|entry| entry.name == "model.weights.h5");
    let weights = weights.ok_or_else(|| Fault::Missing {
        what: "`model.weights.h5` inside the .keras archive".to_owned(),
    })?;
    let bytes = weights.open(&input.bytes, &context.cache, &context.limits)?;
    let inner = Input {
        name: weights.name.clone(),
        path: None,
        bytes,
    };
    Ok(Contents {
        format: "keras",
        ..read(&inner, context)?
    })
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let file = guard(|| {
        Hdf5File::from_owner(
            Owner(input.bytes.clone()),
            options(input.bytes.len() as u64, &context.limits),
        )
    })?;
    let root = guard(|| file.superblock().root_object_header_address())?;
    let base = input.bytes.len() as u64 - file.storage().len();
    let walk = Walk {
        file: Arc::new(file),
        input,
        context,
        base,
        root,
        groups: HashMap::new(),
        budget: FREE_LISTING + input.bytes.len() as u64 / 2,
        contents: Contents::new("hdf5"),
    };
    walk.run()
}

/// The map, as the crate wants it.
struct Owner(Bytes);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn options(file: u64, limits: &Limits) -> OpenOptions {
    let mut filters = FilterRegistry::new();
    filters.register(
        LZF,
        Box::new(|filter: &FilterDescription, data: &[u8], _: usize| {
            unpack_lzf(data, filter.client_data.get(2).copied())
        }),
    );
    // No resolver of external files or links is given, so the crate cannot reach one. What is read goes through our own
    // cache, so the crate need not keep chunks.
    OpenOptions::default()
        .with_filter_registry(filters)
        .with_chunk_cache_bytes(0)
        .with_max_chunk_bytes(usize::try_from(unpack_limit(file, limits)).unwrap_or(usize::MAX))
        .with_max_object_header_bytes(16 << 20)
}

fn unpack_limit(file: u64, limits: &Limits) -> u64 {
    FREE_UNPACKING.max(file.saturating_mul(limits.inflate_ratio))
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs foreign code on a foreign file. The crate is fuzzed and promises not to panic, but its 20,000 lines are not ours
/// to vouch for, and a panic there must cost one file, not the program; this is the only place that catches one.
fn guard<T>(run: impl FnOnce() -> Result<T, Error>) -> Result<T, Fault> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(before);
    match result {
        Ok(result) => result.map_err(fault),
        Err(_) => Err(Fault::BadHeader {
            what: "the HDF5 structures make no sense".to_owned(),
        }),
    }
}

fn fault(error: Error) -> Fault {
    let what = error.to_string();
    match error {
        Error::Context { source, .. } => fault(*source),
        Error::UnexpectedEof { .. } | Error::OffsetOutOfBounds(_) => Fault::Truncated { what },
        Error::ResourceLimit(_) => Fault::Limit { what },
        Error::UnsupportedFilter(_) | Error::UnsupportedEncoding(_) => Fault::Unsupported { what },
        Error::Io(_) => Fault::Io { what },
        _ if what.starts_with("unsupported") => Fault::Unsupported { what },
        _ => Fault::BadHeader { what },
    }
}

/// The links of one group.
struct Links {
    all: Vec<(String, LinkTarget)>,
    by_name: HashMap<String, usize>,
}

/// A group whose links are being walked.
struct Level {
    address: u64,
    links: Arc<Links>,
    next: usize,
    /// Length of the path that leads here.
    path: usize,
}

struct Walk<'a> {
    file: Arc<Hdf5File>,
    input: &'a Input,
    context: &'a Context,
    /// What comes before the HDF5 file in the file.
    base: u64,
    root: u64,
    groups: HashMap<u64, Arc<Links>>,
    budget: u64,
    contents: Contents,
}

impl Walk<'_> {
    fn run(mut self) -> Result<Contents, Fault> {
        let mut path = String::new();
        let mut open = vec![Level {
            address: self.root,
            links: self.links(self.root)?,
            next: 0,
            path: 0,
        }];
        while let Some(level) = open.last_mut() {
            let Some((name, target)) = level.links.all.get(level.next) else {
                open.pop();
                continue;
            };
            path.truncate(level.path);
            if level.path > 0 {
                path.push('/');
            }
            path.push_str(name);
            level.next += 1;
            let (target, group) = (target.clone(), level.address);
            if let Err(fault) = self.charge(path.len() + 64) {
                self.contents.skip("(more)", fault);
                break;
            }
            match self.object(&path, &target, group) {
                Ok(Some(address)) if open.iter().any(|level| level.address == address) => {
                    self.contents.skip(
                        path.clone(),
                        Fault::BadHeader {
                            what: "a group inside itself".to_owned(),
                        },
                    );
                }
                Ok(Some(_)) if open.len() == MAX_DEPTH => {
                    self.contents.skip(
                        path.clone(),
                        Fault::Limit {
                            what: format!("groups nested deeper than {MAX_DEPTH}"),
                        },
                    );
                }
                Ok(Some(address)) => match self.links(address) {
                    Ok(links) => open.push(Level {
                        address,
                        links,
                        next: 0,
                        path: path.len(),
                    }),
                    Err(fault) => self.contents.skip(path.clone(), fault),
                },
                Ok(None) => {}
                Err(fault) => {
                    // A few say it all, and each is compared with those before.
                    if let Fault::PathEscape { what } = &fault
                        && self.contents.findings.len() < 16
                    {
                        self.contents.find(
                            FindingKind::PathEscape,
                            format!("`{path}`: {what}; not followed"),
                        );
                    }
                    self.contents.skip(path.clone(), fault);
                }
            }
        }
        Ok(self.contents)
    }

    /// Counts what is about to be kept.
    fn charge(&mut self, bytes: usize) -> Result<(), Fault> {
        let limit = || Fault::Limit {
            what: "the links make a tree far larger than the file".to_owned(),
        };
        self.budget = self.budget.checked_sub(bytes as u64).ok_or_else(limit)?;
        Ok(())
    }

    /// Lists a dataset; returns the address of a group.
    fn object(
        &mut self,
        path: &str,
        target: &LinkTarget,
        group: u64,
    ) -> Result<Option<u64>, Fault> {
        let address = self.follow(target, group, &mut 0)?;
        let header = self.header(address)?;
        if header.messages.iter().any(|m| {
            matches!(
                m,
                HdfMessage::SymbolTable(_) | HdfMessage::Link(_) | HdfMessage::LinkInfo(_)
            )
        }) {
            return Ok(Some(address));
        }
        if header
            .messages
            .iter()
            .any(|m| matches!(m, HdfMessage::DataLayout(_) | HdfMessage::Dataspace(_)))
        {
            self.dataset(path, address, &header)?;
        }
        // Anything else is a named datatype or an empty group: nothing to list.
        Ok(None)
    }

    fn header(&self, address: u64) -> Result<Arc<ObjectHeader>, Fault> {
        guard(|| self.file.get_or_parse_header(address))
    }

    /// The address a link leads to, through as many soft links as it takes.
    fn follow(&mut self, target: &LinkTarget, group: u64, hops: &mut usize) -> Result<u64, Fault> {
        let (mut target, mut group) = (target.clone(), group);
        // What is still to be walked, the next part last.
        let mut rest: Vec<String> = Vec::new();
        loop {
            let address = match target {
                LinkTarget::Hard { address } => address,
                LinkTarget::Soft { path } => {
                    *hops += 1;
                    if *hops > MAX_HOPS {
                        return Err(Fault::BadHeader {
                            what: format!(
                                "more than {MAX_HOPS} links one after the other, or a loop"
                            ),
                        });
                    }
                    if path.starts_with('/') {
                        group = self.root;
                    }
                    rest.extend(
                        path.split('/')
                            .rev()
                            .filter(|part| !part.is_empty() && *part != ".")
                            .map(str::to_owned),
                    );
                    group
                }
                LinkTarget::External { filename, path } => return Err(external(&filename, &path)),
            };
            let Some(part) = rest.pop() else {
                return Ok(address);
            };
            if rest.len() > MAX_DEPTH {
                return Err(Fault::Limit {
                    what: format!("a link with more than {MAX_DEPTH} parts"),
                });
            }
            group = address;
            let links = self.links(group)?;
            let found = links
                .by_name
                .get(&part)
                .map(|index| links.all[*index].1.clone());
            target = found.ok_or_else(|| Fault::Missing {
                what: format!(
                    "`{}`, where a soft link leads",
                    part.chars().take(80).collect::<String>()
                ),
            })?;
        }
    }

    fn links(&mut self, address: u64) -> Result<Arc<Links>, Fault> {
        if let Some(links) = self.groups.get(&address) {
            return Ok(Arc::clone(links));
        }
        let header = self.header(address)?;
        let mut all = guard(|| {
            let mut all = Vec::new();
            for message in &header.messages {
                match message {
                    HdfMessage::SymbolTable(table) => symbol_table(&self.file, table, &mut all)?,
                    HdfMessage::Link(link) => all.push((link.name.clone(), link.target.clone())),
                    HdfMessage::LinkInfo(info) => dense_links(&self.file, info, &mut all)?,
                    _ => {}
                }
            }
            Ok(all)
        })?;
        // Many groups can share one table of links, so a table costs again each time it is read.
        self.charge(all.iter().map(|(name, _)| name.len() + 32).sum())?;
        let mut by_name = HashMap::new();
        let before = all.len();
        all.retain(|(name, _)| !name.is_empty());
        for (index, (name, _)) in all.iter().enumerate() {
            by_name.entry(name.clone()).or_insert(index);
        }
        if by_name.len() < before {
            self.contents.find(
                FindingKind::Odd,
                "a group has links without a name, or two of one name",
            );
        }
        let links = Arc::new(Links { all, by_name });
        self.groups.insert(address, Arc::clone(&links));
        Ok(links)
    }

    fn dataset(&mut self, path: &str, address: u64, header: &ObjectHeader) -> Result<(), Fault> {
        let (mut space, mut kind, mut layout, mut packed) = (None, None, None, false);
        for message in &header.messages {
            match message {
                HdfMessage::Dataspace(message) => space = Some(message),
                HdfMessage::Datatype(message) => kind = Some(&message.datatype),
                HdfMessage::DataLayout(message) => layout = Some(&message.layout),
                HdfMessage::FilterPipeline(message) => packed = !message.filters.is_empty(),
                HdfMessage::ExternalFiles(_) => {
                    return Err(Fault::PathEscape {
                        what: "its values are in another file".to_owned(),
                    });
                }
                _ => {}
            }
        }
        let missing = |what: &str| Fault::BadHeader {
            what: format!("a dataset without a {what}"),
        };
        let space = space.ok_or_else(|| missing("dataspace"))?;
        let kind = kind.ok_or_else(|| missing("datatype"))?;
        let layout = layout.ok_or_else(|| missing("layout"))?;
        if matches!(space.dataspace_type, DataspaceType::Null) {
            self.contents.value(path.to_owned(), Plain::None);
            return Ok(());
        }
        let Some(item) = self.item(path, address, kind)? else {
            let text = format!(
                "{} elements",
                space
                    .dims
                    .iter()
                    .map(u64::to_string)
                    .collect::<Vec<_>>()
                    .join(" x ")
            );
            self.contents.value(
                path.to_owned(),
                Plain::Other {
                    kind: kind_name(kind).to_owned(),
                    text,
                },
            );
            return Ok(());
        };
        let shape = item.shape(space, self.context.limits.rank)?;
        let overflow = || Fault::Overflow {
            what: format!(
                "{shape} of {} has more bytes than can be counted",
                item.dtype
            ),
        };
        let need = shape
            .elements()
            .and_then(|elements| item.dtype.byte_len(elements))
            .ok_or_else(overflow)?;
        let data = self.data(path, address, layout, packed, &item, &shape, need)?;
        self.contents.entries.push(Entry {
            name: path.to_owned(),
            dtype: item.dtype,
            shape,
            meta: item.meta,
            data,
        });
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the facts of one dataset, used once"
    )]
    fn data(
        &self,
        path: &str,
        address: u64,
        layout: &DataLayout,
        packed: bool,
        item: &Item,
        shape: &Shape,
        need: u64,
    ) -> Result<Data, Fault> {
        let undefined =
            |place: u64| Cursor::is_undefined_offset(place, self.file.superblock().offset_size);
        let bytes = match layout {
            _ if need == 0 => Bytes::from(Vec::new()),
            DataLayout::Compact { data } => Bytes::from(data.clone()),
            DataLayout::Contiguous { address, size }
                if !packed && !undefined(*address) && *size > 0 =>
            {
                let start = self.base.checked_add(*address);
                let range = start.and_then(|start| Some(start..start.checked_add(need)?));
                let range = range.ok_or_else(|| Fault::Overflow {
                    what: format!("it begins at byte {address}"),
                })?;
                if *size != need {
                    return Err(Fault::SizeMismatch {
                        what: format!(
                            "{shape} of {} takes {need} bytes, {size} are stored",
                            item.dtype
                        ),
                    });
                }
                let (end, file) = (range.end, self.input.bytes.len());
                self.input
                    .bytes
                    .slice(range)
                    .ok_or_else(|| Fault::Truncated {
                        what: format!("its bytes end at {end}, the file at {file}"),
                    })?
            }
            DataLayout::Contiguous { .. } | DataLayout::Chunked { .. } => {
                return Ok(Data::Lazy(Arc::new(Stored {
                    file: Arc::clone(&self.file),
                    path: path.to_owned(),
                    address,
                    dtype: item.dtype,
                    shape: shape.clone(),
                    big_endian: item.big_endian,
                    need,
                    limit: unpack_limit(self.input.bytes.len() as u64, &self.context.limits),
                    cache: Arc::clone(&self.context.cache),
                })));
            }
        };
        let view = View::new(item.dtype, shape.clone(), bytes.clone())?.big_endian(item.big_endian);
        Ok(if item.big_endian {
            Data::View(Box::new(view))
        } else {
            Data::Plain(bytes)
        })
    }

    /// What one element is; `None` for what is no number, string or record of a fixed size.
    fn item(&self, path: &str, address: u64, kind: &Datatype) -> Result<Option<Item>, Fault> {
        let plain = |dtype: DType, order: &ByteOrder| Item {
            dtype,
            big_endian: *order == ByteOrder::BigEndian,
            dims: Vec::new(),
            meta: None,
        };
        let unknown = || Fault::BadDtype {
            what: format!("{kind:?}").chars().take(120).collect(),
        };
        Ok(Some(match kind {
            Datatype::FixedPoint {
                size,
                signed,
                byte_order,
            } => {
                let dtype = match (size, signed) {
                    (1, false) => DType::U8,
                    (1, true) => DType::I8,
                    (2, false) => DType::U16,
                    (2, true) => DType::I16,
                    (4, false) => DType::U32,
                    (4, true) => DType::I32,
                    (8, false) => DType::U64,
                    (8, true) => DType::I64,
                    _ => return Err(unknown()),
                };
                plain(dtype, byte_order)
            }
            Datatype::Bitfield { size, byte_order } => {
                let dtype = [DType::U8, DType::U16, DType::U32, DType::U64]
                    .into_iter()
                    .find(|d| d.itemsize() == Some(usize::from(*size)));
                plain(dtype.ok_or_else(unknown)?, byte_order)
            }
            Datatype::FloatingPoint {
                size: 4,
                byte_order,
            } => plain(DType::F32, byte_order),
            Datatype::FloatingPoint {
                size: 8,
                byte_order,
            } => plain(DType::F64, byte_order),
            Datatype::FloatingPoint { byte_order, .. } => plain(
                self.odd_float(path, address)?.ok_or_else(unknown)?,
                byte_order,
            ),
            Datatype::Enum { base, members } => {
                let mut item = self.item(path, address, base)?.ok_or_else(unknown)?;
                let mut names: Vec<&str> =
                    members.iter().map(|member| member.name.as_str()).collect();
                names.sort_unstable();
                if names == ["FALSE", "TRUE"] && matches!(item.dtype, DType::I8 | DType::U8) {
                    item.dtype = DType::Bool;
                }
                item
            }
            Datatype::Compound { size, fields } => match fields.as_slice() {
                [re, im]
                    if is_complex(
                        re.byte_offset,
                        &re.name,
                        &re.datatype,
                        im.byte_offset,
                        &im.name,
                        &im.datatype,
                        *size,
                    ) =>
                {
                    let mut item = self
                        .item(path, address, &re.datatype)?
                        .ok_or_else(unknown)?;
                    item.dtype = match (item.dtype, size) {
                        (DType::F32, 8) => DType::C64,
                        (DType::F64, 16) => DType::C128,
                        // The parts of a compound are not looked into further; two bytes are halves.
                        _ => return Err(unknown()),
                    };
                    item
                }
                _ if has_references(kind, 0) => return Ok(None),
                _ => {
                    let described = fields
                        .iter()
                        .map(|f| serde_json::json!([f.name, f.byte_offset, kind_name(&f.datatype)]))
                        .collect();
                    let mut meta = Meta::None;
                    meta.get_or_insert_default()
                        .insert("fields".to_owned(), described);
                    Item {
                        dtype: DType::Struct(*size),
                        big_endian: false,
                        dims: Vec::new(),
                        meta,
                    }
                }
            },
            Datatype::Array { base, dims } => {
                let Some(mut item) = self.item(path, address, base)? else {
                    return Ok(None);
                };
                item.dims.splice(0..0, dims.iter().copied());
                item
            }
            Datatype::String {
                size: StringSize::Fixed(size),
                ..
            } => plain(DType::Bytes(*size), &ByteOrder::LittleEndian),
            Datatype::Opaque { size, .. } => {
                // Keras writes bfloat16 like this, and says so in an attribute.
                let dtype = match (size, self.dtype_attribute(path, address).as_deref()) {
                    (2, Some("bfloat16")) => DType::Bf16,
                    (1, Some("float8_e4m3fn")) => DType::F8E4M3Fn,
                    (1, Some("float8_e5m2")) => DType::F8E5M2,
                    _ => DType::Void(*size),
                };
                plain(dtype, &ByteOrder::LittleEndian)
            }
            Datatype::String { .. } | Datatype::VarLen { .. } | Datatype::Reference { .. } => {
                return Ok(None);
            }
        }))
    }

    /// Floats that are told apart by more than their size, which is all the crate keeps: the file's own description says.
    fn odd_float(&self, path: &str, address: u64) -> Result<Option<DType>, Fault> {
        let raw = guard(|| {
            self.file
                .dataset(path)
                .and_then(|dataset| same(dataset, address))
                .and_then(|dataset| dataset.raw_datatype())
        })?;
        // Class and flags, size, bit offset, precision, exponent location and size, mantissa location and size, bias.
        let (Some(&size), Some(&exponent), Some(&mantissa)) =
            (raw.get(4), raw.get(13), raw.get(15))
        else {
            return Ok(None);
        };
        Ok(match (size, exponent, mantissa) {
            (2, 5, 10) => Some(DType::F16),
            (2, 8, 7) => Some(DType::Bf16),
            (1, 5, 2) => Some(DType::F8E5M2),
            (1, 4, 3) => Some(DType::F8E4M3Fn),
            (16, 15, 64) => Some(DType::F80),
            _ => None,
        })
    }

    fn dtype_attribute(&self, path: &str, address: u64) -> Option<String> {
        let read = || {
            self.file
                .dataset(path)
                .and_then(|dataset| same(dataset, address))?
                .attribute("dtype")?
                .read_string()
        };
        guard(read).ok()
    }
}

/// A path can lead elsewhere than our walk did when a group has two links of one name.
fn same(dataset: Dataset, address: u64) -> Result<Dataset, Error> {
    if dataset.address() == address {
        Ok(dataset)
    } else {
        Err(Error::InvalidData("two objects of one name".to_owned()))
    }
}

fn external(file: &str, path: &str) -> Fault {
    let short = |text: &str| text.chars().take(200).collect::<String>();
    let what = format!("a link to `{}` in the file `{}`", short(path), short(file));
    let absolute = file.starts_with(['/', '\\']) || file.as_bytes().get(1) == Some(&b':');
    if absolute || file.split(['/', '\\']).any(|part| part == "..") {
        Fault::PathEscape { what }
    } else {
        Fault::Unsupported { what }
    }
}

/// h5py's complex numbers: a record of `r` and `i`.
fn is_complex(
    re_at: u32,
    re: &str,
    re_kind: &Datatype,
    im_at: u32,
    im: &str,
    im_kind: &Datatype,
    size: u32,
) -> bool {
    matches!((re, im), ("r", "i") | ("re", "im") | ("real", "imag"))
        && re_kind == im_kind
        && matches!(re_kind, Datatype::FloatingPoint { .. })
        && re_at == 0
        && im_at.checked_mul(2) == Some(size)
}

/// Whether elements only point at their values, somewhere else in the file.
fn has_references(kind: &Datatype, depth: usize) -> bool {
    match kind {
        Datatype::VarLen { .. }
        | Datatype::Reference { .. }
        | Datatype::String {
            size: StringSize::Variable,
            ..
        } => true,
        Datatype::Compound { fields, .. } => {
            depth > 16
                || fields
                    .iter()
                    .any(|field| has_references(&field.datatype, depth + 1))
        }
        Datatype::Array { base, .. } | Datatype::Enum { base, .. } => {
            depth > 16 || has_references(base, depth + 1)
        }
        _ => false,
    }
}

fn kind_name(kind: &Datatype) -> &'static str {
    match kind {
        Datatype::FixedPoint { .. } => "hdf5:integer",
        Datatype::FloatingPoint { .. } => "hdf5:float",
        Datatype::String { .. } => "hdf5:string",
        Datatype::Compound { .. } => "hdf5:compound",
        Datatype::Array { .. } => "hdf5:array",
        Datatype::Enum { .. } => "hdf5:enum",
        Datatype::VarLen { .. } => "hdf5:vlen",
        Datatype::Opaque { .. } => "hdf5:opaque",
        Datatype::Reference { .. } => "hdf5:reference",
        Datatype::Bitfield { .. } => "hdf5:bitfield",
    }
}

/// One element of a dataset.
struct Item {
    dtype: DType,
    big_endian: bool,
    /// Elements can be arrays themselves; their dimensions come last.
    dims: Vec<u64>,
    meta: Meta,
}

impl Item {
    fn shape(&self, space: &DataspaceMessage, max_rank: usize) -> Result<Shape, Fault> {
        let dims = [&space.dims[..], &self.dims[..]].concat();
        if dims.len() > max_rank {
            return Err(Fault::BadShape {
                what: format!("{} dimensions; {max_rank} are allowed", dims.len()),
            });
        }
        let shape = Shape::from(dims);
        if self.dtype.itemsize() == Some(0) && shape.elements() != Some(0) {
            return Err(Fault::BadDtype {
                what: "elements of no bytes".to_owned(),
            });
        }
        Ok(shape)
    }
}

/// The links of an old group: a B-tree of tables of names in a heap.
fn symbol_table(
    file: &Hdf5File,
    table: &SymbolTableMessage,
    all: &mut Vec<(String, LinkTarget)>,
) -> Result<(), Error> {
    let (storage, offsets, lengths) = (
        file.storage(),
        file.superblock().offset_size,
        file.superblock().length_size,
    );
    let heap = LocalHeap::parse_at_storage(storage, table.heap_address, offsets, lengths)?;
    let leaves = btree_v1::collect_btree_v1_leaves_storage(
        storage,
        table.btree_address,
        offsets,
        lengths,
        None,
        &[],
        None,
    )?;
    for (_, address) in leaves {
        // Signature, version, a spare byte, the count; then the entries.
        let count = storage.read_range(address, 8)?;
        let entry = 2 * usize::from(offsets) + 24;
        let node = storage.read_range(
            address,
            8 + usize::from(u16::from_le_bytes([count[6], count[7]])) * entry,
        )?;
        for entry in SymbolTableNode::parse(&mut Cursor::new(&node), offsets, lengths)?.entries {
            let name = heap.get_string_storage(entry.link_name_offset, storage)?;
            let target = match entry.cache_type {
                2 => {
                    let offset =
                        u32::from_le_bytes(*entry.scratch.first_chunk().expect("sixteen bytes"));
                    LinkTarget::Soft {
                        path: heap.get_string_storage(u64::from(offset), storage)?,
                    }
                }
                _ => LinkTarget::Hard {
                    address: entry.object_header_address,
                },
            };
            all.push((name, target));
        }
    }
    Ok(())
}

/// The links of a new group with many: a B-tree of places in a heap of link messages.
fn dense_links(
    file: &Hdf5File,
    info: &LinkInfoMessage,
    all: &mut Vec<(String, LinkTarget)>,
) -> Result<(), Error> {
    let (storage, offsets, lengths) = (
        file.storage(),
        file.superblock().offset_size,
        file.superblock().length_size,
    );
    if Cursor::is_undefined_offset(info.fractal_heap_address, offsets) {
        return Ok(());
    }
    let heap = FractalHeap::parse_at_storage(storage, info.fractal_heap_address, offsets, lengths)?;
    let tree = btree_v2::BTreeV2Header::parse_at_storage(
        storage,
        info.btree_name_index_address,
        offsets,
        lengths,
    )?;
    let records = btree_v2::collect_btree_v2_records_storage(
        storage,
        &tree,
        offsets,
        lengths,
        None,
        &[],
        None,
    )?;
    let mut blocks = FractalHeapDirectBlockCache::default();
    for record in records {
        let (btree_v2::BTreeV2Record::LinkNameHash { heap_id, .. }
        | btree_v2::BTreeV2Record::CreationOrder { heap_id, .. }) = record
        else {
            continue;
        };
        let bytes =
            heap.get_object_storage_cached(&heap_id, storage, offsets, lengths, &mut blocks)?;
        let link = link::parse(&mut Cursor::new(&bytes), offsets, lengths, bytes.len())?;
        all.push((link.name, link.target));
    }
    Ok(())
}

/// A dataset that must be put together: chunks, filters, or a fill value that was never written.
struct Stored {
    file: Arc<Hdf5File>,
    path: String,
    address: u64,
    dtype: DType,
    shape: Shape,
    big_endian: bool,
    need: u64,
    limit: u64,
    cache: Arc<Cache>,
}

impl Lazy for Stored {
    fn view(&self) -> Result<View, ReadError> {
        if self.need > self.limit {
            return Err(ReadError::TooLarge {
                needed: self.need,
                limit: self.limit,
            });
        }
        let dataset = guard(|| same(self.file.dataset(&self.path)?, self.address))
            .map_err(|fault| ReadError::Decode(Box::new(fault)))?;
        // Band by band where the chunks come in that order, which takes the memory of a band; else all at once.
        let mut sorted = true;
        let mut bytes = self.cache.make(&self.path, self.need, &mut |out| {
            sorted = write_bands(&dataset, self.need, out)?;
            if sorted {
                Ok(())
            } else {
                Err(Fault::Unsupported {
                    what: "chunks out of order".to_owned(),
                })
            }
        });
        if !sorted {
            bytes = self.cache.make(&self.path, self.need, &mut |out| {
                let bytes = guard(|| dataset.read_raw_bytes())?;
                if bytes.len() as u64 != self.need {
                    return Err(Fault::SizeMismatch {
                        what: format!(
                            "{} bytes were unpacked, {} are needed",
                            bytes.len(),
                            self.need
                        ),
                    });
                }
                write_all(out, &bytes)
            });
        }
        let bytes = bytes.map_err(|fault| ReadError::Decode(Box::new(fault)))?;
        Ok(View::new(self.dtype, self.shape.clone(), bytes)?.big_endian(self.big_endian))
    }
}

fn write_all(out: &mut dyn Write, bytes: &[u8]) -> Result<(), Fault> {
    out.write_all(bytes).map_err(|e| Fault::Io {
        what: e.to_string(),
    })
}

/// Writes a chunked dataset of `need` bytes, as many rows at a time as a chunk has. Says no when it is not chunked or its
/// chunks are stored in another order than they lie.
fn write_bands(dataset: &Dataset, need: u64, out: &mut dyn Write) -> Result<bool, Fault> {
    let (dims, Some(chunks)) = (dataset.shape(), dataset.chunks()) else {
        return Ok(false);
    };
    let sizes: Vec<u64> = chunks.iter().map(|size| u64::from(*size)).collect();
    let item = guard(|| dataset.raw_element_size())?;
    let rows: u64 = dims.first().copied().unwrap_or(0);
    if sizes.len() != dims.len()
        || sizes.contains(&0)
        || rows == 0
        || !need.is_multiple_of(rows)
        || item == 0
    {
        return Ok(false);
    }
    // `need` was compared with a limit, so the parts of it are sane numbers too.
    let row = usize::try_from(need / rows).map_err(|_| Fault::Overflow {
        what: format!("rows of {} bytes", need / rows),
    })?;
    let fill = dataset
        .fill_value()
        .and_then(|fill| fill.value.clone())
        .filter(|value| value.len() == item)
        .unwrap_or_else(|| vec![0; item]);
    let mut stored = guard(|| dataset.iter_chunks())?;
    let mut next = || guard(|| stored.next().transpose());
    let mut pending = next()?;
    let mut band = Vec::new();
    for start in (0..rows).step_by(usize::try_from(sizes[0]).unwrap_or(usize::MAX)) {
        let height = sizes[0].min(rows - start) as usize;
        band.clear();
        if fill.iter().all(|byte| *byte == 0) {
            band.resize(height * row, 0);
        }
        while band.len() < height * row {
            band.extend_from_slice(&fill);
        }
        while let Some(chunk) = &pending {
            match chunk.offsets().first() {
                Some(at) if *at == start => {
                    place(chunk, dims, &sizes, item, row, height, &mut band)?;
                }
                Some(at) if *at > start => break,
                _ => return Ok(false),
            }
            pending = next()?;
        }
        write_all(out, &band)?;
    }
    Ok(pending.is_none())
}

/// Copies one chunk into the band it belongs to, without what lies beyond the dataset's edges.
fn place(
    chunk: &DatasetChunk,
    dims: &[u64],
    sizes: &[u64],
    item: usize,
    row: usize,
    height: usize,
    band: &mut [u8],
) -> Result<(), Fault> {
    let bad = |what: &str| Fault::BadHeader {
        what: format!("a chunk at {:?} {what}", chunk.offsets()),
    };
    let elements = Shape::from(sizes.to_vec())
        .elements()
        .and_then(|elements| usize::try_from(elements).ok());
    if elements.and_then(|elements| elements.checked_mul(item)) != Some(chunk.bytes().len()) {
        return Err(bad("has the wrong length"));
    }
    if chunk.offsets().len() != dims.len()
        || chunk.offsets().iter().zip(dims).any(|(at, dim)| at >= dim)
    {
        return Err(bad("lies outside the dataset"));
    }
    // How far the chunk reaches inside the dataset, in each dimension; the first is the band's.
    let mut inside: Vec<usize> = chunk
        .offsets()
        .iter()
        .zip(dims)
        .zip(sizes)
        .map(|((at, dim), size)| (*size).min(dim - at) as usize)
        .collect();
    inside[0] = inside[0].min(height);
    let last = dims.len() - 1;
    let run = inside[last] * item;
    let mut index = vec![0usize; last];
    loop {
        let (mut from, mut to) = (0usize, 0usize);
        for k in 0..=last {
            let here = if k < last { index[k] } else { 0 };
            from = from * sizes[k] as usize + here;
            if k > 0 {
                to = to * dims[k] as usize + chunk.offsets()[k] as usize + here;
            }
        }
        let first = if last == 0 { 0 } else { index[0] * row };
        let (from, to) = (from * item, to * item + first);
        band[to..to + run].copy_from_slice(&chunk.bytes()[from..from + run]);
        let Some(k) = (0..last).rev().find(|k| index[*k] + 1 < inside[*k]) else {
            return Ok(());
        };
        index[k] += 1;
        index[k + 1..].fill(0);
    }
}

/// LibLZF: runs of literal bytes and references back, at most 264 bytes for three.
fn unpack_lzf(packed: &[u8], expected: Option<u32>) -> Result<Vec<u8>, Error> {
    let bad = |what: &str| Error::DecompressionError(format!("LZF: {what}"));
    let mut out: Vec<u8> = Vec::new();
    let mut bytes = packed.iter().copied();
    while let Some(control) = bytes.next() {
        if control < 32 {
            for _ in 0..=control {
                out.push(bytes.next().ok_or_else(|| bad("it ends in a run"))?);
            }
            continue;
        }
        let mut count = usize::from(control >> 5);
        if count == 7 {
            count += usize::from(bytes.next().ok_or_else(|| bad("it ends in a length"))?);
        }
        let low = bytes.next().ok_or_else(|| bad("it ends in a reference"))?;
        let back = (usize::from(control & 31) << 8 | usize::from(low)) + 1;
        let start = out
            .len()
            .checked_sub(back)
            .ok_or_else(|| bad("a reference before the beginning"))?;
        // The source may overlap what is being written.
        for at in start..start + count + 2 {
            out.push(out[at]);
        }
    }
    match expected {
        Some(expected @ 1..) if out.len() != expected as usize => {
            Err(bad(&format!("{} bytes instead of {expected}", out.len())))
        }
        _ => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, input};
    use proptest::prelude::*;

    const OLD: &[u8] = include_bytes!("../../../testdata/hdf5/earliest/input.h5");
    const NEW: &[u8] = include_bytes!("../../../testdata/hdf5/latest/input.h5");
    const KERAS: &[u8] = include_bytes!("../../../testdata/hdf5/keras/input.keras");

    fn entry<'a>(contents: &'a Contents, name: &str) -> &'a Entry {
        contents
            .entries
            .iter()
            .find(|entry| entry.name == name)
            .unwrap()
    }

    #[test]
    fn contiguous_datasets_stay_in_the_map_and_packed_ones_wait() {
        for file in [OLD, NEW] {
            let contents = read(&input("x.h5", file.to_vec()), &context()).unwrap();
            assert!(matches!(entry(&contents, "contig").data, Data::Plain(_)));
            assert!(matches!(entry(&contents, "be").data, Data::View(_)));
            assert!(matches!(entry(&contents, "gzip").data, Data::Lazy(_)));
            assert_eq!(entry(&contents, "bf16").dtype, DType::Bf16);
        }
    }

    #[test]
    fn a_keras_archive_is_read_through_to_its_weights() {
        let file = input("x.keras", KERAS.to_vec());
        assert!(recognise_keras(&file) && !recognise(&file));
        let contents = read_keras(&file, &context()).unwrap();
        assert!(matches!(
            entry(&contents, "layers/dense/vars/0").data,
            Data::Plain(_)
        ));
    }

    #[test]
    fn a_panic_in_the_crate_becomes_a_fault() {
        assert!(matches!(
            guard::<()>(|| panic!("foreign code")),
            Err(Fault::BadHeader { .. })
        ));
    }

    #[test]
    fn lzf_is_unpacked_within_its_bounds() {
        // Two literals, then six bytes from two back: the source overlaps the copy.
        assert_eq!(
            unpack_lzf(&[1, b'a', b'b', 4 << 5, 1], Some(8)).unwrap(),
            b"abababab"
        );
        assert_eq!(
            unpack_lzf(&[0, b'a', 7 << 5, 1, 0], None).unwrap(),
            b"a".repeat(11)
        );
        for bad in [&[5, 1][..], &[4 << 5, 0], &[0, 1, 7 << 5], &[0, 1, 4 << 5]] {
            assert!(unpack_lzf(bad, None).is_err());
        }
        assert!(unpack_lzf(&[0, 1], Some(9)).is_err());
    }

    fn survives(bytes: Vec<u8>) {
        if let Ok(contents) = read(&input("x.h5", bytes), &context()) {
            for entry in &contents.entries {
                let _ = entry.view();
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn no_damage_panics(new in any::<bool>(), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
            let mut bytes = if new { NEW } else { OLD }.to_vec();
            for (at, byte) in changes { *at.get_mut(&mut bytes) = byte; }
            survives(bytes);
        }

        #[test]
        fn no_cut_panics(new in any::<bool>(), cut in any::<prop::sample::Index>()) {
            let bytes = if new { NEW } else { OLD };
            survives(bytes[..cut.index(bytes.len())].to_vec());
        }

        #[test]
        fn no_bytes_panic(tail in proptest::collection::vec(any::<u8>(), 0..400)) {
            survives([MAGIC, &tail].concat());
        }

        #[test]
        fn no_lzf_panics(packed in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = unpack_lzf(&packed, Some(30));
        }
    }
}
