//! One line of the index, put together as text: a map of values would be made and thrown away for every record.

use serde_json::{Map, Value};
use std::io::Write;

#[derive(Debug)]
pub(super) struct Line {
    text: Vec<u8>,
    keys: Vec<&'static str>,
}

impl Line {
    /// A line of this kind.
    pub(super) fn new(kind: &str) -> Self {
        let mut line = Self {
            text: Vec::with_capacity(512),
            keys: Vec::with_capacity(24),
        };
        line.text.push(b'{');
        line.text("k", kind);
        line
    }

    pub(super) fn text(&mut self, key: &'static str, value: &str) {
        self.key(key);
        quote(&mut self.text, value);
    }

    pub(super) fn number(&mut self, key: &'static str, value: u64) {
        self.key(key);
        write(&mut self.text, format_args!("{value}"));
    }

    pub(super) fn numbers(&mut self, key: &'static str, values: &[u64]) {
        self.key(key);
        list(&mut self.text, values);
    }

    pub(super) fn value(&mut self, key: &'static str, value: &Value) {
        self.key(key);
        write(&mut self.text, format_args!("{value}"));
    }

    pub(super) fn maybe_text(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    pub(super) fn maybe_number(&mut self, key: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.number(key, value);
        }
    }

    /// The whole line, with what somebody else wants to have kept. What the line says already is not overwritten.
    pub(super) fn end_with(mut self, more: &Map<String, Value>) -> Vec<u8> {
        for (key, value) in more {
            if !self.keys.contains(&key.as_str()) {
                self.text.push(b',');
                quote(&mut self.text, key);
                write(&mut self.text, format_args!(":{value}"));
            }
        }
        self.text.extend_from_slice(b"}\n");
        self.text
    }

    pub(super) fn end(self) -> Vec<u8> {
        self.end_with(&Map::new())
    }

    fn key(&mut self, key: &'static str) {
        debug_assert!(!self.keys.contains(&key), "`{key}` is in the line already");
        if !self.keys.is_empty() {
            self.text.push(b',');
        }
        self.keys.push(key);
        // Keys of the format are plain words.
        write(&mut self.text, format_args!("\"{key}\":"));
    }
}

/// A string as JSON has it.
pub(super) fn quote(text: &mut Vec<u8>, value: &str) {
    serde_json::to_writer(text, value).expect("a string into memory");
}

pub(super) fn list(text: &mut Vec<u8>, values: &[u64]) {
    text.push(b'[');
    for (at, value) in values.iter().enumerate() {
        write(
            text,
            format_args!("{}{value}", if at == 0 { "" } else { "," }),
        );
    }
    text.push(b']');
}

fn write(text: &mut Vec<u8>, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("memory takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_is_json_and_the_formats_own_keys_win() {
        let mut line = Line::new("t");
        line.text("name", "a \"b\"\n\u{1f600}");
        line.number("i", u64::MAX);
        line.numbers("off", &[0, 16]);
        line.numbers("shape", &[]);
        line.maybe_text("cls", None);
        let more = json!({"i": 3, "seed": {"x": [1.5, null]}, "cls": "mine"});
        let text = line.end_with(more.as_object().unwrap());
        assert_eq!(text.last(), Some(&b'\n'));
        let expected = json!({"k": "t", "name": "a \"b\"\n\u{1f600}", "i": u64::MAX, "off": [0, 16], "shape": [], "seed": {"x": [1.5, null]}, "cls": "mine"});
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), expected);
    }
}
