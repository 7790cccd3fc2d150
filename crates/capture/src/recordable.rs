//! What can be recorded: anything that has a dtype, a shape and row-major values.

use crate::CaptureError;
use half::{bf16, f16};
use std::{any::Any, borrow::Cow};
use twinscope_tensor::{DType, Shape, View};

/// A tensor of some framework, or plain memory.
pub trait Recordable {
    fn dtype(&self) -> DType;

    fn shape(&self) -> Shape;

    /// Hands the row-major little-endian bytes to `use_values`, once. They are borrowed where they lie like that.
    fn with_values(&self, use_values: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError>;

    /// Which memory this is, when the framework can tell: a later tensor in the same memory was computed from this one.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// Where it lies: `cpu`, `cuda:0`.
    fn device(&self) -> Option<Cow<'static, str>> {
        None
    }
}

/// Memory that a tensor lives in.
pub struct Identity {
    /// Its address.
    pub storage: usize,
    /// How many bytes it is.
    pub bytes: u64,
    /// Keeps the memory from being freed and its address from being given to another tensor.
    pub hold: Box<dyn Any + Send>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({:#x}, {} bytes)", self.storage, self.bytes)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type whose memory is the bytes that are recorded.
pub trait Element: sealed::Sealed + Copy + 'static {
    const DTYPE: DType;

    /// The values' little-endian bytes.
    fn le_bytes(values: &[Self]) -> Cow<'_, [u8]>;
}

macro_rules! elements {
    ($($type:ty = $dtype:ident),* $(,)?) => { $(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            fn le_bytes(values: &[Self]) -> Cow<'_, [u8]> {
                if cfg!(target_endian = "little") {
                    // SAFETY: these are numbers without padding, any byte may be read, and the length is theirs.
                    Cow::Borrowed(unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) })
                } else {
                    Cow::Owned(values.iter().flat_map(|value| value.to_le_bytes()).collect())
                }
            }
        }

        /// One number is a tensor without dimensions.
        impl Recordable for $type {
            fn dtype(&self) -> DType {
                DType::$dtype
            }

            fn shape(&self) -> Shape {
                Shape::scalar()
            }

            fn with_values(&self, use_values: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError> {
                use_values(&self.to_le_bytes());
                Ok(())
            }
        }
    )* };
}
elements!(
    u8 = U8,
    i8 = I8,
    u16 = U16,
    i16 = I16,
    u32 = U32,
    i32 = I32,
    u64 = U64,
    i64 = I64,
    f16 = F16,
    bf16 = Bf16,
    f32 = F32,
    f64 = F64
);

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn le_bytes(values: &[Self]) -> Cow<'_, [u8]> {
        // SAFETY: a bool is one byte, 0 or 1.
        Cow::Borrowed(unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) })
    }
}

/// Values and the sizes of their dimensions.
impl<T: Element> Recordable for (&[T], &[usize]) {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn shape(&self) -> Shape {
        self.1
            .iter()
            .map(|dim| *dim as u64)
            .collect::<Vec<_>>()
            .into()
    }

    fn with_values(&self, use_values: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError> {
        use_values(&T::le_bytes(self.0));
        Ok(())
    }
}

/// One dimension.
impl<T: Element> Recordable for [T] {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn shape(&self) -> Shape {
        Shape::new([self.len() as u64])
    }

    fn with_values(&self, use_values: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError> {
        use_values(&T::le_bytes(self));
        Ok(())
    }
}

impl<T: Element> Recordable for Vec<T> {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn shape(&self) -> Shape {
        self.as_slice().shape()
    }

    fn with_values(&self, use_values: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError> {
        self.as_slice().with_values(use_values)
    }
}

/// A tensor of another source.
impl Recordable for View {
    fn dtype(&self) -> DType {
        View::dtype(self)
    }

    fn shape(&self) -> Shape {
        View::shape(self).clone()
    }

    fn with_values(&self, use_values: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError> {
        let unreadable = |what: String| CaptureError::Values {
            name: String::new(),
            what,
        };
        let mut scratch = Vec::new();
        let count = usize::try_from(self.len())
            .map_err(|_| unreadable(format!("{} elements", self.len())))?;
        use_values(self.chunk(0, count, &mut scratch));
        self.check().map_err(|error| unreadable(error.to_string()))
    }
}
