//! What a file that holds no tensors really is, told from its first bytes.

pub(crate) const UNKNOWN: &str = "data of a kind we do not know";
pub(crate) const ZEROS: &str = "nothing but zeros, as far as its first bytes go";
const TEXT: &str = "plain text";

/// Extensions of formats that are never text: a text under such a name is an answer of a server, or a pointer.
const BINARY: &[&str] = &[
    "safetensors",
    "gguf",
    "npy",
    "npz",
    "onnx",
    "h5",
    "hdf5",
    "keras",
    "msgpack",
    "pt",
    "pth",
    "ckpt",
];

/// What a file is that a format claimed by its extension and could not read, when its first bytes leave no doubt.
pub(crate) fn impostor(bytes: &[u8], extension: &str) -> Option<&'static str> {
    let found = describe(bytes);
    let text = found == TEXT && BINARY.contains(&extension) && !bytes.ends_with(b".");
    (text
        || found == "a Git LFS pointer"
        || found == "an empty file"
        || found.ends_with("(a failed download?)"))
    .then_some(found)
}

/// A phrase that completes "not a tensor file but ...".
pub(crate) fn describe(bytes: &[u8]) -> &'static str {
    let head = &bytes[..bytes.len().min(4096)];
    if head.is_empty() {
        return "an empty file";
    }
    if let Some((_, what)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return what;
    }
    if head.get(4..8) == Some(b"ftyp") {
        return "a video";
    }
    if head.iter().all(|b| *b == 0) {
        return ZEROS;
    }
    text_kind(head).unwrap_or(UNKNOWN)
}

/// Leading bytes that leave no doubt.
const MAGIC: &[(&[u8], &str)] = &[
    (
        b"version https://git-lfs.github.com/spec/",
        "a Git LFS pointer",
    ),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF file (WAV, AVI or WebP)"),
    (b"BM", "a BMP image"),
    (b"%PDF-", "a PDF"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program or library"),
    (b"\xcf\xfa\xed\xfe", "a macOS program or library"),
    (b"\xca\xfe\xba\xbe", "a Java class or macOS program"),
    (b"#!", "a script"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"PK\x03\x04", "a zip archive without tensors"),
    (b"Rar!", "a RAR archive (unpack it first)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive (unpack it first)"),
    (b"BZh", "a bzip2 archive (unpack it first)"),
    (b"\xfd7zXZ\0", "an xz archive (unpack it first)"),
    (b"\x04\x22\x4d\x18", "an lz4 archive (unpack it first)"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (
        b"ggml",
        "a GGML file from before GGUF (convert it with llama.cpp)",
    ),
    (
        b"tjgg",
        "a GGJT file from before GGUF (convert it with llama.cpp)",
    ),
    (
        b"ggjt",
        "a GGJT file from before GGUF (convert it with llama.cpp)",
    ),
    (
        b"lmgg",
        "a GGML file from before GGUF (convert it with llama.cpp)",
    ),
    (b"TFL3", "a TensorFlow Lite model"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
];

fn text_kind(head: &[u8]) -> Option<&'static str> {
    // TensorFlow's table files end in a magic number; their beginning says nothing, but TFLite has its own at 4.
    if head.get(4..8) == Some(b"TFL3") {
        return Some("a TensorFlow Lite model");
    }
    if head.len() > 12 && head[..2] == [0x08, 0x01] && head[2] == 0x12 {
        return Some("a TensorFlow SavedModel (export it as ONNX or NumPy)");
    }
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The cut at 4096 bytes may split a character.
        Err(e) if head.len() - e.valid_up_to() < 4 && e.valid_up_to() > 0 => {
            std::str::from_utf8(&head[..e.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    if text
        .chars()
        .any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\x0c' | '\x1b'))
    {
        return None;
    }
    let start = text.trim_start_matches('\u{feff}').trim_start();
    let lower: String = start
        .chars()
        .take(64)
        .collect::<String>()
        .to_ascii_lowercase();
    Some(
        if lower.starts_with("<!doctype html")
            || lower.starts_with("<html")
            || lower.starts_with("<head")
        {
            "an HTML page (a failed download?)"
        } else if lower.starts_with("<?xml") || lower.starts_with("<error") {
            "an XML page (a failed download?)"
        } else if lower.starts_with(['{', '[']) {
            "JSON text"
        } else if start.is_empty() {
            "blank text"
        } else {
            TEXT
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_what_they_are() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "an empty file"),
            (
                b"version https://git-lfs.github.com/spec/v1\noid sha256:00",
                "a Git LFS pointer",
            ),
            (
                b"\n<!DOCTYPE html><html>",
                "an HTML page (a failed download?)",
            ),
            (
                b"<?xml version='1.0'?><Error>",
                "an XML page (a failed download?)",
            ),
            (b"{\"error\": \"not found\"}", "JSON text"),
            (b"Entry not found\n", "plain text"),
            (b"\x89PNG\r\n\x1a\n....", "a PNG image"),
            (b"\x7fELF\x02\x01", "an ELF program or library"),
            (&[0; 100], "nothing but zeros, as far as its first bytes go"),
            (
                b"\x93\xff\x00\x01garbage\xfe",
                "data of a kind we do not know",
            ),
        ];
        for (bytes, expected) in cases {
            assert_eq!(describe(bytes), *expected);
        }
        assert_eq!(
            impostor(b"Entry not found", "safetensors"),
            Some("plain text")
        );
        assert_eq!(
            impostor(
                b"version https://git-lfs.github.com/spec/v1\n",
                "safetensors"
            ),
            Some("a Git LFS pointer")
        );
        assert_eq!(
            impostor(b"(lp0\nI1\na.", "pkl"),
            None,
            "a pickle of protocol 0 is text"
        );
        let mut long = "é".repeat(3000).into_bytes();
        long.insert(0, b'x');
        assert_eq!(describe(&long), "plain text");
    }
}
