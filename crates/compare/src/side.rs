//! One side of a comparison: a source's tensors and its Python numbers, which are one-element tensors here, in execution order.

use std::sync::atomic::{AtomicBool, Ordering};
use twinscope_tensor::{DType, Meta, Plain, ReadError, Shape, TensorSource, View};

/// What can be paired: a tensor or a number.
#[derive(Clone, Debug)]
pub struct Item {
    pub name: String,
    pub dtype: DType,
    pub shape: Shape,
    pub meta: Meta,
    from: From,
}

#[derive(Clone, Debug)]
enum From {
    Tensor(usize),
    Number(Vec<u8>),
}

/// A source, as pairing and measuring see it.
pub struct Side<'a> {
    source: &'a dyn TensorSource,
    items: Vec<Item>,
    stopped: Option<&'a AtomicBool>,
}

impl std::fmt::Debug for Side<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Side({}, {} items)",
            self.source.listing().source,
            self.items.len()
        )
    }
}

impl<'a> Side<'a> {
    pub fn new(source: &'a dyn TensorSource) -> Self {
        let listing = source.listing();
        let mut items = Vec::with_capacity(listing.tensors.len() + listing.values.len());
        let mut numbers = listing
            .values
            .iter()
            .filter_map(|value| Some((value.after, number(&value.name, &value.value)?)))
            .peekable();
        for (index, tensor) in listing.tensors.iter().enumerate() {
            while let Some((_, item)) = numbers.next_if(|(after, _)| *after <= index) {
                items.push(item);
            }
            let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
            items.push(Item {
                name,
                dtype: tensor.dtype,
                shape,
                meta: tensor.meta.clone(),
                from: From::Tensor(index),
            });
        }
        items.extend(numbers.map(|(_, item)| item));
        Self {
            source,
            items,
            stopped: None,
        }
    }

    /// A side that reads nothing once `stopped` is set. Planning and causes read through their sides all the time, so both end soon,
    /// without a check in each of their loops; whoever set the flag drops the result.
    pub fn stoppable(source: &'a dyn TensorSource, stopped: &'a AtomicBool) -> Self {
        Self {
            stopped: Some(stopped),
            ..Self::new(source)
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped
            .is_some_and(|stopped| stopped.load(Ordering::Relaxed))
    }

    pub fn items(&self) -> &[Item] {
        &self.items
    }

    pub fn source(&self) -> &dyn TensorSource {
        self.source
    }

    pub fn view(&self, index: usize) -> Result<View, ReadError> {
        if self.is_stopped() {
            return Err(ReadError::NoData { why: "stopped" });
        }
        let item = &self.items[index];
        match &item.from {
            From::Tensor(at) => self.source.view(*at),
            From::Number(bytes) => Ok(View::new(
                item.dtype,
                item.shape.clone(),
                bytes.clone().into(),
            )?),
        }
    }
}

/// Digits of an integer beyond 64 bits are filled up to a multiple of this, so that integers about as long can be compared.
const DIGITS: usize = 64;

/// Python's bool, int, float and complex; `None` for what is no number. An integer beyond 64 bits is its digits, which are equal or not.
fn number(name: &str, value: &Plain) -> Option<Item> {
    let (dtype, bytes) = match value {
        Plain::Bool(truth) => (DType::Bool, vec![u8::from(*truth)]),
        Plain::Int(digits) => match digits.parse::<i64>() {
            Ok(int) => (DType::I64, int.to_le_bytes().to_vec()),
            Err(_) => match digits.parse::<u64>() {
                Ok(int) => (DType::U64, int.to_le_bytes().to_vec()),
                Err(_) => {
                    let mut bytes = digits.clone().into_bytes();
                    bytes.resize(bytes.len().next_multiple_of(DIGITS), 0);
                    (DType::Bytes(u32::try_from(bytes.len()).ok()?), bytes)
                }
            },
        },
        Plain::Float(float) => (DType::F64, float.to_le_bytes().to_vec()),
        Plain::Complex(re, im) => (DType::C128, [re.to_le_bytes(), im.to_le_bytes()].concat()),
        Plain::None | Plain::Str(_) | Plain::Bytes(_) | Plain::Other { .. } => return None,
    };
    Some(Item {
        name: name.to_owned(),
        dtype,
        shape: Shape::scalar(),
        meta: None,
        from: From::Number(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_any_size_take_part() {
        let item = |digits: &str| number("n", &Plain::Int(digits.to_owned())).expect("a number");
        assert_eq!(item("-9223372036854775808").dtype, DType::I64);
        assert_eq!(item("18446744073709551615").dtype, DType::U64);
        let [big, bigger] = ["18446744073709551616", "1000000000000000000000000000000"].map(item);
        assert_eq!(
            (big.dtype, bigger.dtype),
            (DType::Bytes(64), DType::Bytes(64))
        );
        assert!(
            matches!((big.from, bigger.from), (From::Number(a), From::Number(b)) if a != b && a.starts_with(b"18446744073709551616\0"))
        );
    }
}
