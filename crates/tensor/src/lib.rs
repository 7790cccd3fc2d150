//! The words: what a tensor is, before any file and after any opinion. No I/O here.

pub mod assembly;
pub mod blocks;
pub mod bytes;
pub mod decode;
pub mod dtype;
pub mod formula;
pub mod minifloat;
pub mod operand;
pub mod picked;
pub mod shape;
mod shortest;
mod side;
pub mod slice;
pub mod source;
pub mod value;
pub mod view;

pub use assembly::Assembly;
pub use bytes::{Bytes, Shrunk, Storage};
pub use decode::{f32_values, f64_values};
pub use dtype::{BlockType, DType, Kind, Packing, TimeUnit};
pub use operand::Operand;
pub use picked::{Picked, Plane, PlaneError};
pub use shape::Shape;
pub use side::Side;
pub use source::{
    Finding, FindingKind, Listing, Meta, Plain, PlainValue, ReadError, Skipped, TensorInfo,
    TensorSource,
};
pub use value::{Float, Value};
pub use view::{Quant, View, ViewError};
