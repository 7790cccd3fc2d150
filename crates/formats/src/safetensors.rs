//! safetensors: `u64 N`, N bytes of JSON, then the data; `name -> {dtype, shape, data_offsets: [begin, end]}`.
//!
//! The JSON is read in one pass straight from the map, and only names and shapes are copied. The rules are those of the safetensors
//! library (no hole, no overlap, exact lengths, nothing after the last tensor), but a tensor that breaks one is left out
//! alone: the library refuses the whole file. Holes and trailing bytes harm nobody and are only reported.

use crate::{
    contents::{Contents, Data, Entry},
    error::Fault,
    input::{Context, Input},
};
use std::{borrow::Cow, hash::BuildHasher};
use twinscope_tensor::{DType, FindingKind, Packing, Shape};

/// The library's own bound on the header.
const MAX_HEADER: u64 = 100_000_000;
/// Values nest three deep in a sane header; everything beyond is skipped without recursion, and not for long.
const MAX_DEPTH: usize = 64;

/// What others begin with, and no header of ours: as a length it would be beyond what the format allows.
const OTHERS: [&[u8]; 6] = [
    b"PK\x03\x04",
    b"\x93NUMPY",
    b"GGUF",
    b"\x89HDF\r\n\x1a\n",
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
];

pub(crate) fn recognise(input: &Input) -> bool {
    // A file under a wrong name is still what it is.
    let length = header_length(&input.bytes);
    let other = length.is_some_and(|length| length > MAX_HEADER)
        && OTHERS.iter().any(|magic| input.bytes.starts_with(magic));
    if input.extension() == "safetensors" && !other {
        return true;
    }
    let Some(length) = header_length(&input.bytes) else {
        return false;
    };
    let Some(header) = (length <= MAX_HEADER)
        .then(|| input.bytes.get(8..8 + length as usize))
        .flatten()
    else {
        return false;
    };
    header.starts_with(b"{")
        && header.ends_with(b"}") | header.ends_with(b" ")
        && header.contains(&b'"')
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let file = input.bytes.len() as u64;
    let length = header_length(&input.bytes).ok_or_else(|| Fault::Truncated {
        what: format!("{file} bytes, a header's length alone takes 8"),
    })?;
    if length > MAX_HEADER {
        return Err(Fault::BadHeader {
            what: format!("a header of {length} bytes, the format allows {MAX_HEADER}"),
        });
    }
    let start = 8 + length;
    let header = input
        .bytes
        .get(8..start as usize)
        .ok_or_else(|| Fault::Truncated {
            what: format!("the header ends at byte {start}, the file at {file}"),
        })?;
    let text = std::str::from_utf8(header).map_err(|e| Fault::BadHeader {
        what: format!("the header is not UTF-8 at byte {}", 8 + e.valid_up_to()),
    })?;

    let mut contents = Contents::new("safetensors");
    if text.starts_with([' ', '\t', '\n', '\r']) {
        contents.find(
            FindingKind::Odd,
            "the header begins with white space, the format wants `{`",
        );
    }
    let table = Table::parse(text, context.limits.rank, &mut contents)?;
    table.list(input, start, &mut contents);
    Ok(contents)
}

fn header_length(bytes: &[u8]) -> Option<u64> {
    bytes
        .first_chunk()
        .map(|length| u64::from_le_bytes(*length))
}

/// One line of the header, offsets relative to the data.
struct Line<'a> {
    name: Cow<'a, str>,
    tensor: Result<Tensor, Fault>,
}

struct Tensor {
    dtype: DType,
    shape: Shape,
    begin: u64,
    end: u64,
}

struct Table<'a> {
    lines: Vec<Line<'a>>,
}

impl<'a> Table<'a> {
    fn parse(text: &'a str, max_rank: usize, contents: &mut Contents) -> Result<Self, Fault> {
        let mut json = Json { text, at: 0 };
        // The shortest line there can be takes 50 bytes.
        let mut lines: Vec<Line<'a>> = Vec::with_capacity(text.len() / 100);
        json.space();
        json.expect(b'{')?;
        let mut first = true;
        while let Some(name) = json.key(&mut first)? {
            let start = json.at;
            if name == "__metadata__" {
                json.metadata(contents)?;
                continue;
            }
            let mut tensor = json.tensor(max_rank);
            if tensor.is_err() {
                // Wrong for a tensor, but it may be right as JSON: then only this tensor is lost.
                json.at = start;
                json.skip()?;
            }
            if let Ok(found) = &tensor {
                tensor = found.fits().map(|()| tensor.expect("just seen"));
            }
            lines.push(Line { name, tensor });
        }
        json.space();
        if json.at != text.len() {
            return Err(json.bad("more after the closing `}`"));
        }
        let mut table = Self { lines };
        table.refuse_duplicates(contents);
        Ok(table)
    }

    /// Of two equal names the last one counts, as in the library, which does not say so.
    fn refuse_duplicates(&mut self, contents: &mut Contents) {
        // Sorted hashes instead of a map: a third of the time, and no input can make it slow.
        let seed = std::hash::RandomState::new().hash_one(0) | 1;
        let mut hashes: Vec<(u64, usize)> = self
            .lines
            .iter()
            .enumerate()
            .map(|(i, line)| (hash(line.name.as_bytes(), seed), i))
            .collect();
        hashes.sort_unstable();
        let mut duplicates = 0u64;
        for run in hashes
            .chunk_by_mut(|a, b| a.0 == b.0)
            .filter(|run| run.len() > 1)
        {
            run.sort_unstable_by(|a, b| {
                self.lines[a.1]
                    .name
                    .cmp(&self.lines[b.1].name)
                    .then(a.1.cmp(&b.1))
            });
            for pair in run.windows(2) {
                if self.lines[pair[0].1].name == self.lines[pair[1].1].name {
                    let what = "the header has it twice, the last one counts".to_owned();
                    self.lines[pair[0].1].tensor = Err(Fault::DuplicateName { what });
                    duplicates += 1;
                }
            }
        }
        if duplicates > 0 {
            let text = format!(
                "names that are in the header twice: {duplicates}; the last one of each counts"
            );
            contents.find(FindingKind::Odd, text);
        }
    }

    /// Checks how the tensors lie in the file, and lists those that lie well in the header's order.
    fn list(mut self, input: &Input, start: u64, contents: &mut Contents) {
        let data = input.bytes.len() as u64 - start;
        self.check_layout(data, contents);
        contents.entries.reserve(self.lines.len());
        for Line { name, tensor } in self.lines {
            let tensor = match tensor {
                Ok(tensor) => tensor,
                Err(fault) => {
                    contents.skip(name, fault);
                    continue;
                }
            };
            let Some(bytes) = input.bytes.slice(start + tensor.begin..start + tensor.end) else {
                contents.skip(
                    name,
                    Fault::Truncated {
                        what: format!("its bytes end at {}, the data at {data}", tensor.end),
                    },
                );
                continue;
            };
            let Tensor { dtype, shape, .. } = tensor;
            contents.entries.push(Entry {
                name: name.into_owned(),
                dtype,
                shape,
                meta: None,
                data: Data::Plain(bytes),
            });
        }
    }

    fn check_layout(&mut self, data: u64, contents: &mut Contents) {
        for line in &mut self.lines {
            if let Ok(Tensor { end, .. }) = line.tensor
                && end > data
            {
                line.tensor = Err(Fault::Truncated {
                    what: format!("its bytes end at {end}, the data at {data}"),
                });
            }
        }
        let mut order: Vec<(u64, u64, usize)> = self
            .lines
            .iter()
            .enumerate()
            .filter_map(|(i, line)| {
                line.tensor
                    .as_ref()
                    .ok()
                    .map(|tensor| (tensor.begin, tensor.end, i))
            })
            .collect();
        order.sort_unstable();
        let (mut covered, mut before) = (0, None);
        let mut holes = 0u64;
        for (begin, end, i) in order {
            if begin < covered && begin < end {
                // Only the beginning: a name can be as long as the header, and be named once for every other tensor.
                let other: String = before
                    .map(|b: usize| self.lines[b].name.chars().take(80).collect())
                    .unwrap_or_default();
                self.lines[i].tensor = Err(Fault::Overlap {
                    what: format!(
                        "bytes {begin} to {end} overlap `{other}`, which ends at {covered}"
                    ),
                });
                continue;
            }
            if begin > covered {
                holes += begin - covered;
            }
            (covered, before) = (covered.max(end), Some(i));
        }
        // With a tensor left out these are its bytes, not a surprise.
        if self.lines.iter().any(|line| line.tensor.is_err()) {
            return;
        }
        if holes > 0 {
            contents.find(
                FindingKind::Odd,
                format!("{holes} bytes between the tensors belong to none of them"),
            );
        }
        if covered < data {
            contents.find(
                FindingKind::Odd,
                format!("{} bytes after the last tensor", data - covered),
            );
        }
    }
}

impl Tensor {
    /// Whether the shape takes exactly the bytes it is given.
    fn fits(&self) -> Result<(), Fault> {
        let Self {
            dtype,
            shape,
            begin,
            end,
        } = self;
        let overflow = || Fault::Overflow {
            what: format!("the shape {shape} has more elements than can be counted"),
        };
        let elements = shape.elements().ok_or_else(overflow)?;
        let bits = match dtype.packing() {
            Packing::Bits(bits) => bits as u64,
            Packing::Bytes(bytes) => 8 * bytes as u64,
            Packing::Block { .. } => unreachable!("no block type is in the table"),
        };
        let bits = elements.checked_mul(bits).ok_or_else(overflow)?;
        if bits % 8 != 0 {
            return Err(Fault::BadShape {
                what: format!("{shape} of {dtype} is {bits} bits, not whole bytes"),
            });
        }
        if begin > end {
            return Err(Fault::BadHeader {
                what: format!("data_offsets run backwards, from {begin} to {end}"),
            });
        }
        if end - begin != bits / 8 {
            return Err(Fault::SizeMismatch {
                what: format!(
                    "{shape} of {dtype} takes {} bytes, data_offsets give {}",
                    bits / 8,
                    end - begin
                ),
            });
        }
        Ok(())
    }
}

/// Good enough to tell names apart; equal hashes are compared by name.
fn hash(name: &[u8], seed: u64) -> u64 {
    let mix = |state: u64, word: u64| {
        let product = u128::from(state ^ word).wrapping_mul(u128::from(seed));
        (product as u64) ^ (product >> 64) as u64
    };
    let (words, rest) = name.as_chunks::<8>();
    let state = words.iter().fold(name.len() as u64, |state, word| {
        mix(state, u64::from_le_bytes(*word))
    });
    mix(
        state,
        rest.iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    )
}

pub(crate) fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "BOOL" => DType::Bool,
        "F4" => DType::F4,
        "F6_E2M3" => DType::F6E2M3,
        "F6_E3M2" => DType::F6E3M2,
        "U8" => DType::U8,
        "I8" => DType::I8,
        "F8_E5M2" => DType::F8E5M2,
        "F8_E4M3" => DType::F8E4M3Fn,
        "F8_E8M0" => DType::F8E8M0Fnu,
        "F8_E4M3FNUZ" => DType::F8E4M3Fnuz,
        "F8_E5M2FNUZ" => DType::F8E5M2Fnuz,
        "I16" => DType::I16,
        "U16" => DType::U16,
        "F16" => DType::F16,
        "BF16" => DType::Bf16,
        "I32" => DType::I32,
        "U32" => DType::U32,
        "F32" => DType::F32,
        "C64" => DType::C64,
        "F64" => DType::F64,
        "I64" => DType::I64,
        "U64" => DType::U64,
        _ => return None,
    })
}

/// A cursor over JSON that knows only what a header needs. Every error names its place.
struct Json<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Json<'a> {
    fn bad(&self, what: &str) -> Fault {
        Fault::BadHeader {
            what: format!("{what} at byte {} of the header", self.at),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        self.space();
        if self.peek() != Some(byte) {
            return Err(self.bad(&format!("`{}` is missing", char::from(byte))));
        }
        self.at += 1;
        Ok(())
    }

    /// Whether another item follows in a list or object that ends with `close`.
    fn item(&mut self, close: u8, first: &mut bool) -> Result<bool, Fault> {
        self.space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        if !std::mem::replace(first, false) {
            self.expect(b',')?;
            self.space();
            if self.peek() == Some(close) {
                return Err(self.bad("a comma before the end"));
            }
        }
        Ok(true)
    }

    /// The next key of an object and its colon, or nothing when the object ends.
    fn key(&mut self, first: &mut bool) -> Result<Option<Cow<'a, str>>, Fault> {
        if !self.item(b'}', first)? {
            return Ok(None);
        }
        let key = self.string()?;
        self.expect(b':')?;
        self.space();
        Ok(Some(key))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        self.expect(b'"')?;
        let start = self.at;
        let end = self.plain_run()?;
        if self.text.as_bytes()[end] == b'"' {
            self.at = end + 1;
            return Ok(Cow::Borrowed(&self.text[start..end]));
        }
        let mut owned = self.text[start..end].to_owned();
        self.at = end;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(owned));
                }
                Some(b'\\') => owned.push(self.escape()?),
                _ => {
                    let start = self.at;
                    self.at = self.plain_run()?;
                    owned.push_str(&self.text[start..self.at]);
                }
            }
        }
    }

    /// Where the run of characters that stand for themselves ends: at a quote or a backslash.
    fn plain_run(&self) -> Result<usize, Fault> {
        let rest = &self.text.as_bytes()[self.at..];
        let len = rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))
            .ok_or_else(|| self.bad("a string without an end"))?;
        if rest[len] < 0x20 {
            return Err(self.bad("a control character in a string"));
        }
        Ok(self.at + len)
    }

    fn escape(&mut self) -> Result<char, Fault> {
        self.at += 1;
        let letter = self
            .peek()
            .ok_or_else(|| self.bad("an escape without an end"))?;
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hex()?;
                let mut code = u32::from(high);
                if (0xD800..0xDC00).contains(&high)
                    && self.text.as_bytes()[self.at..].starts_with(b"\\u")
                {
                    self.at += 2;
                    let low = self.hex()?;
                    if !(0xDC00..0xE000).contains(&low) {
                        return Err(self.bad("half a surrogate pair"));
                    }
                    code = 0x10000 + ((u32::from(high) - 0xD800) << 10) + (u32::from(low) - 0xDC00);
                }
                char::from_u32(code).ok_or_else(|| self.bad("half a surrogate pair"))?
            }
            _ => return Err(self.bad("an unknown escape")),
        })
    }

    fn hex(&mut self) -> Result<u16, Fault> {
        let digits = self
            .text
            .as_bytes()
            .get(self.at..self.at + 4)
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.ok_or_else(|| self.bad("an escape without four digits"))?;
        self.at += 4;
        Ok(digits.iter().fold(0, |code, digit| {
            code << 4 | char::from(*digit).to_digit(16).unwrap_or(0) as u16
        }))
    }

    /// A whole number that fits 64 bits; a sign, a fraction or an exponent is none.
    fn number(&mut self) -> Result<u64, Fault> {
        self.space();
        let start = self.at;
        let mut value: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(u64::from(digit - b'0')))
                .ok_or_else(|| Fault::Overflow {
                    what: format!("a number beyond 64 bits at byte {start} of the header"),
                })?;
            self.at += 1;
        }
        if self.at == start || matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return Err(self.bad("a size or offset that is not a whole number"));
        }
        Ok(value)
    }

    fn tensor(&mut self, max_rank: usize) -> Result<Tensor, Fault> {
        self.expect(b'{')?;
        let (mut kind, mut shape, mut offsets) = (None, None, None);
        let mut first = true;
        while let Some(key) = self.key(&mut first)? {
            let again = match &*key {
                "dtype" => kind.replace(self.string()?).is_some(),
                "shape" => shape.replace(self.shape(max_rank)?).is_some(),
                "data_offsets" => offsets.replace(self.offsets()?).is_some(),
                _ => {
                    self.skip()?;
                    false
                }
            };
            if again {
                return Err(self.bad(&format!("`{key}` a second time")));
            }
        }
        let missing = |field: &str| Fault::BadHeader {
            what: format!("`{field}` is missing"),
        };
        let kind = kind.ok_or_else(|| missing("dtype"))?;
        let dtype = dtype(&kind).ok_or_else(|| Fault::BadDtype {
            what: format!("`{}`", kind.chars().take(40).collect::<String>()),
        })?;
        let (begin, end) = offsets.ok_or_else(|| missing("data_offsets"))?;
        Ok(Tensor {
            dtype,
            shape: shape.ok_or_else(|| missing("shape"))?,
            begin,
            end,
        })
    }

    fn shape(&mut self, max_rank: usize) -> Result<Shape, Fault> {
        self.expect(b'[')?;
        let (mut dims, mut rank) = ([0u64; 8], 0);
        let mut more = Vec::new();
        let mut first = true;
        while self.item(b']', &mut first)? {
            let dim = self.number()?;
            match dims.get_mut(rank) {
                Some(place) => *place = dim,
                None => more.push(dim),
            }
            rank += 1;
            if rank > max_rank {
                return Err(Fault::BadShape {
                    what: format!("more than {max_rank} dimensions"),
                });
            }
        }
        if more.is_empty() {
            return Ok(Shape::new(&dims[..rank]));
        }
        Ok(Shape::new([&dims[..], &more[..]].concat()))
    }

    fn offsets(&mut self) -> Result<(u64, u64), Fault> {
        self.expect(b'[')?;
        let begin = self.number()?;
        self.expect(b',')?;
        let end = self.number()?;
        self.expect(b']')?;
        Ok((begin, end))
    }

    /// `__metadata__` should be strings by name; what is not is reported and left out.
    fn metadata(&mut self, contents: &mut Contents) -> Result<(), Fault> {
        if self.peek() != Some(b'{') {
            contents.find(FindingKind::Odd, "`__metadata__` is not an object");
            return self.skip();
        }
        self.at += 1;
        let meta = contents.meta.get_or_insert_default();
        let mut odd = Vec::new();
        let mut first = true;
        while let Some(key) = self.key(&mut first)? {
            if self.peek() != Some(b'"') {
                self.skip()?;
                odd.push(format!("`__metadata__.{key}` is not a string"));
                continue;
            }
            let value = self.string()?.into_owned();
            if meta
                .insert(key.clone().into_owned(), value.into())
                .is_some()
            {
                odd.push(format!(
                    "`__metadata__.{key}` is there twice; the last one counts"
                ));
            }
        }
        // A million oddities are one oddity.
        if let Some(text) = odd.into_iter().next() {
            contents.find(FindingKind::Odd, text);
        }
        Ok(())
    }

    /// Steps over any value, without recursion.
    fn skip(&mut self) -> Result<(), Fault> {
        let mut open: Vec<u8> = Vec::new();
        // Whether the innermost list or object has had no item yet.
        let mut first = true;
        loop {
            self.space();
            match self.peek() {
                Some(bracket @ (b'[' | b'{')) => {
                    self.at += 1;
                    if open.len() == MAX_DEPTH {
                        return Err(self.bad(&format!("values nested deeper than {MAX_DEPTH}")));
                    }
                    open.push(bracket + 2);
                    first = true;
                }
                Some(b'"') => drop(self.string()?),
                Some(b'-' | b'0'..=b'9') => self.skip_number()?,
                _ => self.word()?,
            }
            // Close what ends here, and stop before the next item.
            loop {
                let Some(&close) = open.last() else {
                    return Ok(());
                };
                if self.item(close, &mut first)? {
                    if close == b'}' {
                        self.string()?;
                        self.expect(b':')?;
                    }
                    break;
                }
                open.pop();
                first = false;
            }
        }
    }

    fn skip_number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
        ) {
            self.at += 1;
        }
        self.text[start..self.at]
            .parse::<f64>()
            .map(drop)
            .map_err(|_| self.bad("a broken number"))
    }

    fn word(&mut self) -> Result<(), Fault> {
        let rest = &self.text.as_bytes()[self.at..];
        let word = ["true", "false", "null"]
            .iter()
            .find(|word| rest.starts_with(word.as_bytes()));
        self.at += word.ok_or_else(|| self.bad("not JSON"))?.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, input};
    use proptest::prelude::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend((0..data).map(|i| i as u8));
        bytes
    }

    fn open(header: &str, data: usize) -> Result<Contents, Fault> {
        read(&input("x.safetensors", file(header, data)), &context())
    }

    fn names(contents: &Contents) -> Vec<&str> {
        contents
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect()
    }

    #[test]
    fn fields_come_in_any_order_and_unknown_ones_are_stepped_over() {
        let header = r#"{"b":{"shape":[2],"x":[{"y":[1,-2.5e3,null]},"z"],"data_offsets":[8,16],"dtype":"F32"}, "a" : {"dtype":"F64","shape":[],"data_offsets":[0,8]} }  "#;
        let contents = open(header, 16).unwrap();
        assert_eq!(names(&contents), ["b", "a"]);
        assert!(contents.skipped.is_empty() && contents.findings.is_empty() && !contents.ordered);
        assert_eq!(
            contents.entries[0].view().unwrap().contiguous().unwrap(),
            &[8, 9, 10, 11, 12, 13, 14, 15]
        );
    }

    #[test]
    fn names_are_unescaped() {
        let contents = open(
            r#"{"a\ud83d\ude00\n\"\u00e9":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
            1,
        )
        .unwrap();
        assert_eq!(names(&contents), ["a😀\n\"é"]);
        assert!(
            open(
                r#"{"\ud83d":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
                1
            )
            .is_err()
        );
    }

    #[test]
    fn one_bad_tensor_does_not_hide_the_others() {
        for bad in [
            r#"{"dtype":"F99","shape":[4],"data_offsets":[4,8]}"#,
            r#"{"dtype":"U8","shape":[-4],"data_offsets":[4,8]}"#,
            r#"{"dtype":"U8","shape":[4.0],"data_offsets":[4,8]}"#,
            r#"{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[4,8]}"#,
            r#"{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[4,8]}"#,
            r#"{"dtype":"F4","shape":[3],"data_offsets":[4,5]}"#,
            r#"{"dtype":"U8","shape":[5],"data_offsets":[4,8]}"#,
            r#"{"dtype":"U8","shape":[4],"data_offsets":[8,4]}"#,
            r#"{"dtype":"U8","shape":[4],"data_offsets":[2,6]}"#,
            r#"{"dtype":"U8","shape":[400],"data_offsets":[4,404]}"#,
            r#"{"dtype":"U8","shape":[4],"data_offsets":[4,8],"shape":[4]}"#,
            r#"{"dtype":"U8","shape":[4]}"#,
            r#"["no object"]"#,
            "null",
        ] {
            let header =
                format!(r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},"bad":{bad}}}"#);
            let contents = open(&header, 8).unwrap();
            assert_eq!(names(&contents), ["a"], "{bad}");
            assert_eq!(contents.skipped.len(), 1, "{bad}");
            assert_eq!(contents.skipped[0].name, "bad", "{bad}");
        }
    }

    #[test]
    fn of_two_equal_names_the_last_counts_and_it_is_said() {
        let contents =
            open(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}"#, 4)
                .unwrap();
        assert_eq!(contents.entries.len(), 1);
        assert_eq!(contents.entries[0].dtype, DType::I8);
        assert_eq!((contents.skipped.len(), contents.findings.len()), (1, 1));
    }

    #[test]
    fn holes_and_trailing_bytes_are_found_and_harmless() {
        let contents = open(
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#,
            9,
        )
        .unwrap();
        assert_eq!(contents.entries.len(), 1);
        assert_eq!(contents.findings.len(), 2);
    }

    #[test]
    fn metadata_is_kept() {
        let contents = open(r#"{"__metadata__":{"format":"pt","n":3}}"#, 0).unwrap();
        assert_eq!(contents.meta.as_ref().unwrap()["format"], "pt");
        assert_eq!(contents.findings.len(), 1, "a number is not a string");
    }

    #[test]
    fn broken_json_is_refused() {
        for header in [
            "",
            "{",
            "[]",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            "{} x",
            "{\"a\u{1}\":1}",
            r#"{"a":[1}"#,
            r#"{"a":tru}"#,
        ] {
            assert!(
                matches!(open(header, 0), Err(Fault::BadHeader { .. })),
                "{header}"
            );
        }
        let deep = format!(r#"{{"a":{}}}"#, "[".repeat(200_000));
        assert!(matches!(open(&deep, 0), Err(Fault::BadHeader { .. })));
    }

    #[test]
    fn lengths_are_checked_before_they_are_believed() {
        let read = |bytes: Vec<u8>| read(&input("x.safetensors", bytes), &context()).unwrap_err();
        assert!(matches!(read(vec![1, 2]), Fault::Truncated { .. }));
        assert!(matches!(read(vec![0xff; 20]), Fault::BadHeader { .. }));
        assert!(matches!(
            read(vec![99, 0, 0, 0, 0, 0, 0, 0, b'{']),
            Fault::Truncated { .. }
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&input("x.safetensors", bytes), &context());
        }

        #[test]
        fn no_damage_panics(at in 0usize..220, byte in any::<u8>(), cut in 0usize..240) {
            let mut bytes = file(r#"{"__metadata__":{"k":"v"},"a\u00e9":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"F4","shape":[4],"data_offsets":[8,10]}}  "#, 10);
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            bytes.truncate(cut);
            if let Ok(contents) = read(&input("x.safetensors", bytes), &context()) {
                for entry in &contents.entries { let _ = entry.view(); }
            }
        }
    }
}
