//! candle: its tensors recorded, its modules wrapped, its weights and gradients named.
//!
//! - `tensor.tap("name")?` and `result.tap("name")?` record and hand on: [`TapExt`].
//! - [`nn`] has candle_nn's constructors under their own names; what they build records its outputs under the path of its
//!   `VarBuilder`. Swapping the import is all a model needs.
//! - [`weights`] records every weight that a model loads through its `VarBuilder`.
//! - [`gradients`] records a `GradStore`; `tensor.tap_grad("name")?` records the gradient of an activation, which a `GradStore` does not keep.
//!
//! What a tensor was computed from is told by its memory: [`Traced`] names the record that its input is.

use crate::{
    CaptureError, DType, Element, Identity, Phase, Recordable, Role, Shape, Span, Tap, is_on,
    record, wants,
};
use candle_core::{
    CpuStorage, CustomOp1, Device, DeviceLocation, Error, Layout, Module, Result, Storage, Tensor,
    backprop::GradStore,
};
use candle_nn::{VarBuilder, VarMap, var_builder::SimpleBackend};
use std::{
    borrow::Cow,
    collections::HashSet,
    ops::Deref,
    sync::{Mutex, PoisonError},
};

/// The version of candle that this is made for, for [`crate::Builder::framework`].
pub const FRAMEWORK: (&str, &str) = ("candle", "0.11");

/// A model that stops because recording failed says why.
impl From<CaptureError> for Error {
    fn from(error: CaptureError) -> Self {
        Error::wrap(error)
    }
}

impl Recordable for Tensor {
    fn dtype(&self) -> DType {
        match Tensor::dtype(self) {
            candle_core::DType::U32 => DType::U32,
            candle_core::DType::I16 => DType::I16,
            candle_core::DType::I32 => DType::I32,
            candle_core::DType::I64 => DType::I64,
            candle_core::DType::BF16 => DType::Bf16,
            candle_core::DType::F16 => DType::F16,
            candle_core::DType::F32 => DType::F32,
            candle_core::DType::F64 => DType::F64,
            candle_core::DType::F8E4M3 => DType::F8E4M3Fn,
            candle_core::DType::F8E8M0 => DType::F8E8M0Fnu,
            candle_core::DType::F6E2M3 => DType::F6E2M3,
            candle_core::DType::F6E3M2 => DType::F6E3M2,
            candle_core::DType::F4 => DType::F4,
            // U8, and what a later candle has: `with_values` hands over only what is known here.
            _ => DType::U8,
        }
    }

    fn shape(&self) -> Shape {
        self.dims()
            .iter()
            .map(|dim| *dim as u64)
            .collect::<Vec<_>>()
            .into()
    }

    fn with_values(
        &self,
        use_values: &mut dyn FnMut(&[u8]),
    ) -> std::result::Result<(), CaptureError> {
        let failed = |error: Error| CaptureError::Values {
            name: String::new(),
            what: error.to_string(),
        };
        if let Some(read) = on_cpu(self, use_values) {
            return read;
        }
        let near = self
            .to_device(&Device::Cpu)
            .and_then(|near| near.contiguous())
            .map_err(failed)?;
        let unreadable = || {
            Err(CaptureError::Values {
                name: String::new(),
                what: format!("no bytes of a {:?} tensor", near.dtype()),
            })
        };
        on_cpu(&near, use_values).unwrap_or_else(unreadable)
    }

    fn identity(&self) -> Option<Identity> {
        let (storage, _) = self.storage_and_layout();
        let bytes = match &*storage {
            Storage::Cpu(cpu) => cpu_bytes(cpu),
            Storage::Cuda(_) | Storage::Metal(_) => {
                self.elem_count() * Tensor::dtype(self).size_in_bytes()
            }
        };
        // Without the graph behind it: only the memory is held.
        Some(Identity {
            storage: std::ptr::from_ref(&*storage).addr(),
            bytes: bytes as u64,
            hold: Box::new(self.detach()),
        })
    }

    fn device(&self) -> Option<Cow<'static, str>> {
        Some(match Tensor::device(self).location() {
            DeviceLocation::Cpu => Cow::Borrowed("cpu"),
            DeviceLocation::Cuda { gpu_id } => Cow::Owned(format!("cuda:{gpu_id}")),
            DeviceLocation::Metal { gpu_id } => Cow::Owned(format!("metal:{gpu_id}")),
        })
    }
}

/// `None` unless the values lie in this process's memory, row-major.
fn on_cpu(
    tensor: &Tensor,
    use_values: &mut dyn FnMut(&[u8]),
) -> Option<std::result::Result<(), CaptureError>> {
    let (storage, layout) = tensor.storage_and_layout();
    let (start, end) = layout.contiguous_offsets()?;
    let Storage::Cpu(cpu) = &*storage else {
        return None;
    };
    match cpu {
        CpuStorage::U8(values) => use_values(values.get(start..end)?),
        CpuStorage::U32(values) => use_values(&Element::le_bytes(values.get(start..end)?)),
        CpuStorage::I16(values) => use_values(&Element::le_bytes(values.get(start..end)?)),
        CpuStorage::I32(values) => use_values(&Element::le_bytes(values.get(start..end)?)),
        CpuStorage::I64(values) => use_values(&Element::le_bytes(values.get(start..end)?)),
        CpuStorage::BF16(values) => use_values(&Element::le_bytes(values.get(start..end)?)),
        CpuStorage::F16(values) => use_values(&Element::le_bytes(values.get(start..end)?)),
        CpuStorage::F32(values) => use_values(&Element::le_bytes(values.get(start..end)?)),
        CpuStorage::F64(values) => use_values(&Element::le_bytes(values.get(start..end)?)),
        CpuStorage::F8E4M3(values) => {
            let bits: Vec<u8> = values
                .get(start..end)?
                .iter()
                .map(|value| value.to_bits())
                .collect();
            use_values(&bits);
        }
        CpuStorage::F8E8M0(values) => use_values(values.get(start..end)?),
        // Packed in ways that candle itself does not compute with.
        CpuStorage::F6E2M3(_) | CpuStorage::F6E3M2(_) | CpuStorage::F4(_) => return None,
    }
    Some(Ok(()))
}

fn cpu_bytes(storage: &CpuStorage) -> usize {
    match storage {
        CpuStorage::U32(values) => size_of_val(&values[..]),
        CpuStorage::I16(values) => size_of_val(&values[..]),
        CpuStorage::I32(values) => size_of_val(&values[..]),
        CpuStorage::I64(values) => size_of_val(&values[..]),
        CpuStorage::BF16(values) => size_of_val(&values[..]),
        CpuStorage::F16(values) => size_of_val(&values[..]),
        CpuStorage::F32(values) => size_of_val(&values[..]),
        CpuStorage::F64(values) => size_of_val(&values[..]),
        CpuStorage::F8E4M3(values) => size_of_val(&values[..]),
        CpuStorage::U8(values)
        | CpuStorage::F6E2M3(values)
        | CpuStorage::F6E3M2(values)
        | CpuStorage::F4(values)
        | CpuStorage::F8E8M0(values) => values.len(),
    }
}

/// Recording in the middle of an expression: `attn.forward(&x).tap("attn")?`.
pub trait TapExt: Sized {
    /// Records the tensor under this name and hands it on, unchanged.
    fn tap(self, name: &str) -> Result<Tensor>;

    /// The same with more to say.
    fn tap_with(self, tap: Tap) -> Result<Tensor>;

    /// Records the tensor's gradient under this name when it is computed, and hands the tensor on. On the CPU; elsewhere the gradient
    /// cannot be had, and the run says so.
    fn tap_grad(self, name: &str) -> Result<Tensor>;
}

impl TapExt for Tensor {
    #[inline]
    fn tap(self, name: &str) -> Result<Tensor> {
        record(name, &self)?;
        Ok(self)
    }

    fn tap_with(self, tap: Tap) -> Result<Tensor> {
        tap.record(&self)?;
        Ok(self)
    }

    fn tap_grad(self, name: &str) -> Result<Tensor> {
        if !is_on() || !wants(name, Role::Gradient) {
            return Ok(self);
        }
        let name = crate::span::join(name);
        if !Tensor::device(&self).is_cpu() {
            crate::note(
                &name,
                "its gradient cannot be recorded: candle's identity operation runs on the CPU only",
            )?;
            return Ok(self);
        }
        self.contiguous()?.apply_op1(GradientTap { name })
    }
}

impl TapExt for &Tensor {
    fn tap(self, name: &str) -> Result<Tensor> {
        self.clone().tap(name)
    }

    fn tap_with(self, tap: Tap) -> Result<Tensor> {
        self.clone().tap_with(tap)
    }

    fn tap_grad(self, name: &str) -> Result<Tensor> {
        self.clone().tap_grad(name)
    }
}

impl TapExt for Result<Tensor> {
    #[inline]
    fn tap(self, name: &str) -> Result<Tensor> {
        self.and_then(|tensor| tensor.tap(name))
    }

    fn tap_with(self, tap: Tap) -> Result<Tensor> {
        self.and_then(|tensor| tensor.tap_with(tap))
    }

    fn tap_grad(self, name: &str) -> Result<Tensor> {
        self.and_then(|tensor| tensor.tap_grad(name))
    }
}

/// An operation that changes nothing and sees the gradient pass: the only place where candle shows that of an activation.
struct GradientTap {
    name: String,
}

impl CustomOp1 for GradientTap {
    fn name(&self) -> &'static str {
        "twinscope-gradient-tap"
    }

    fn cpu_fwd(
        &self,
        storage: &CpuStorage,
        layout: &Layout,
    ) -> Result<(CpuStorage, candle_core::Shape)> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("`{}` is not contiguous", self.name)
        };
        let copy = match storage {
            CpuStorage::BF16(values) => CpuStorage::BF16(values[start..end].to_vec()),
            CpuStorage::F16(values) => CpuStorage::F16(values[start..end].to_vec()),
            CpuStorage::F32(values) => CpuStorage::F32(values[start..end].to_vec()),
            CpuStorage::F64(values) => CpuStorage::F64(values[start..end].to_vec()),
            _ => candle_core::bail!(
                "`{}`: only floating-point tensors have gradients to tap",
                self.name
            ),
        };
        Ok((copy, layout.shape().clone()))
    }

    fn bwd(&self, _arg: &Tensor, _res: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        Tap::new(&self.name)
            .absolute()
            .role(Role::Gradient)
            .phase(Phase::Backward)
            .record(gradient)?;
        Ok(Some(gradient.clone()))
    }
}

/// A module that records its output under its path, and otherwise is the module.
#[derive(Clone, Debug)]
pub struct Traced<M> {
    inner: M,
    path: String,
}

impl<M> Traced<M> {
    /// `path` is the module's full path: what `vb.prefix()` says where it is made.
    pub fn new(path: impl Into<String>, inner: M) -> Self {
        Self {
            inner,
            path: path.into(),
        }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn into_inner(self) -> M {
        self.inner
    }
}

impl<M> Deref for Traced<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.inner
    }
}

impl<M: Module> Module for Traced<M> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        if !is_on() {
            return self.inner.forward(input);
        }
        let span = Span::at(self.path.clone());
        let output = self.inner.forward(input)?;
        drop(span);
        let class = std::any::type_name::<M>()
            .rsplit("::")
            .next()
            .unwrap_or_default();
        Tap::new(&self.path)
            .absolute()
            .role(Role::Output)
            .phase(Phase::Forward)
            .class(class)
            .from(input)
            .record(&output)?;
        Ok(output)
    }
}

/// A `VarBuilder` that records every weight it hands out, once, under its full name.
pub fn weights(vb: VarBuilder<'_>) -> VarBuilder<'_> {
    let (prefix, dtype, device) = (vb.prefix(), vb.dtype(), vb.device().clone());
    let recorded = VarBuilder::from_backend(
        Box::new(Weights {
            inner: vb.root(),
            seen: Mutex::default(),
        }),
        dtype,
        device,
    );
    if prefix.is_empty() {
        recorded
    } else {
        recorded.set_prefix(prefix)
    }
}

struct Weights<'a> {
    inner: VarBuilder<'a>,
    seen: Mutex<HashSet<String>>,
}

impl Weights<'_> {
    fn recorded(&self, name: &str, weight: Result<Tensor>) -> Result<Tensor> {
        let weight = weight?;
        if is_on()
            && self
                .seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(name.to_owned())
        {
            record_weight(name, &weight)?;
        }
        Ok(weight)
    }
}

impl SimpleBackend for Weights<'_> {
    fn get(
        &self,
        shape: candle_core::Shape,
        name: &str,
        hint: candle_nn::Init,
        dtype: candle_core::DType,
        _: &Device,
    ) -> Result<Tensor> {
        self.recorded(
            name,
            self.inner.get_with_hints_dtype(shape, name, hint, dtype),
        )
    }

    fn get_unchecked(&self, name: &str, dtype: candle_core::DType, _: &Device) -> Result<Tensor> {
        self.recorded(name, self.inner.get_unchecked_dtype(name, dtype))
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.inner.contains_tensor(name)
    }
}

fn record_weight(name: &str, weight: &Tensor) -> Result<()> {
    Ok(Tap::new(name)
        .absolute()
        .role(Role::Weight)
        .phase(Phase::Weights)
        .record(weight)?)
}

/// Records all variables of a map, in the order of their names.
pub fn record_weights(weights: &VarMap) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    named(weights)
        .iter()
        .try_for_each(|(name, weight)| record_weight(name, weight))
}

/// Records the gradient of every variable that has one, in the order of their names.
pub fn gradients(gradients: &GradStore, weights: &VarMap) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    gradients_of(
        gradients,
        named(weights)
            .iter()
            .map(|(name, weight)| (name.as_str(), weight)),
    )
}

/// Records the gradients of these tensors, where there are any.
pub fn gradients_of<'a>(
    gradients: &GradStore,
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<()> {
    for (name, tensor) in tensors {
        if let Some(gradient) = gradients.get(tensor) {
            Tap::new(name)
                .absolute()
                .role(Role::WeightGradient)
                .phase(Phase::Backward)
                .record(gradient)?;
        }
    }
    Ok(())
}

fn named(weights: &VarMap) -> Vec<(String, Tensor)> {
    let data = weights
        .data()
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let mut named: Vec<(String, Tensor)> = data
        .iter()
        .map(|(name, weight)| (name.clone(), weight.as_tensor().clone()))
        .collect();
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    named
}

/// candle_nn's layers under their own names. `use twinscope_capture::candle::nn::{Linear, linear}` instead of `candle_nn::...` records
/// every output under the path of the `VarBuilder` that the layer was made with.
pub mod nn {
    use super::Traced;
    use candle_core::Result;
    use candle_nn::VarBuilder;

    macro_rules! traced {
        ($($function:ident($($arg:ident: $type:ty),*) -> $module:ident;)*) => { $(
            #[doc = concat!("`candle_nn::", stringify!($function), "`, recorded.")]
            pub fn $function($($arg: $type,)* vb: VarBuilder<'_>) -> Result<$module> {
                let path = vb.prefix();
                Ok(Traced::new(path, candle_nn::$function($($arg,)* vb)?))
            }
        )* };
    }

    pub type Linear = Traced<candle_nn::Linear>;
    pub type Embedding = Traced<candle_nn::Embedding>;
    pub type LayerNorm = Traced<candle_nn::LayerNorm>;
    pub type RmsNorm = Traced<candle_nn::RmsNorm>;
    pub type GroupNorm = Traced<candle_nn::GroupNorm>;
    pub type Conv1d = Traced<candle_nn::Conv1d>;
    pub type Conv2d = Traced<candle_nn::Conv2d>;
    pub type ConvTranspose1d = Traced<candle_nn::ConvTranspose1d>;
    pub type ConvTranspose2d = Traced<candle_nn::ConvTranspose2d>;

    traced! {
        linear(in_dim: usize, out_dim: usize) -> Linear;
        linear_no_bias(in_dim: usize, out_dim: usize) -> Linear;
        linear_b(in_dim: usize, out_dim: usize, bias: bool) -> Linear;
        embedding(in_size: usize, out_size: usize) -> Embedding;
        layer_norm_no_bias(size: usize, eps: f64) -> LayerNorm;
        rms_norm(size: usize, eps: f64) -> RmsNorm;
        group_norm(groups: usize, channels: usize, eps: f64) -> GroupNorm;
        conv1d(in_channels: usize, out_channels: usize, kernel_size: usize, config: candle_nn::Conv1dConfig) -> Conv1d;
        conv1d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: candle_nn::Conv1dConfig) -> Conv1d;
        conv2d(in_channels: usize, out_channels: usize, kernel_size: usize, config: candle_nn::Conv2dConfig) -> Conv2d;
        conv2d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: candle_nn::Conv2dConfig) -> Conv2d;
        conv_transpose1d(in_channels: usize, out_channels: usize, kernel_size: usize, config: candle_nn::ConvTranspose1dConfig) -> ConvTranspose1d;
        conv_transpose2d(in_channels: usize, out_channels: usize, kernel_size: usize, config: candle_nn::ConvTranspose2dConfig) -> ConvTranspose2d;
    }

    /// `candle_nn::layer_norm`, recorded.
    pub fn layer_norm<C: Into<candle_nn::LayerNormConfig>>(
        size: usize,
        config: C,
        vb: VarBuilder<'_>,
    ) -> Result<LayerNorm> {
        let path = vb.prefix();
        Ok(Traced::new(path, candle_nn::layer_norm(size, config, vb)?))
    }
}
