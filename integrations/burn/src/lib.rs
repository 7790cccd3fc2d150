//! burn, recorded: tensors tapped, weights and gradients named by the module tree, and every operation of a model, unchanged.
//!
//! - `tensor.tap("name")` records and hands on: [`TapExt`]; [`record`] only records.
//! - [`record_weights`] and [`record_gradients`] walk a module.
//! - [`record_ops`] runs a model on burn's capture device, which lists the operations instead of executing them, and then executes them one by one,
//!   recording every result with its inputs. The model needs no change, and no tap; where there are taps, they name results.

use burn::{
    backend::{Capture, Flex, flex::FlexDevice},
    module::{Module, ModuleVisitor, Param},
    tensor::{
        Bool, BoolStore, CapturedGraph, Device, Float, Gradients, Int, Tensor, TensorData,
        kind::Basic,
    },
};
use burn_ir::{OperationIr, TensorIr, TensorStatus};
use burn_router::TensorInterpreter;
use std::{
    cell::RefCell,
    collections::HashMap,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Instant,
};
use twinscope_capture::{CaptureError, DType, Element, Phase, Recordable, Role, Shape, Tap, is_on};

/// The version of burn that this is made for, for [`twinscope_capture::Builder::framework`].
pub const FRAMEWORK: (&str, &str) = ("burn", "0.22");

type BurnDType = burn::tensor::DType;

fn unreadable(what: impl ToString) -> CaptureError {
    CaptureError::Values {
        name: String::new(),
        what: what.to_string(),
    }
}

fn dtype(dtype: BurnDType) -> DType {
    match dtype {
        BurnDType::F64 => DType::F64,
        BurnDType::F32 | BurnDType::Flex32 => DType::F32,
        BurnDType::F16 => DType::F16,
        BurnDType::BF16 => DType::Bf16,
        BurnDType::I64 => DType::I64,
        BurnDType::I32 => DType::I32,
        BurnDType::I16 => DType::I16,
        BurnDType::I8 => DType::I8,
        BurnDType::U64 => DType::U64,
        BurnDType::U32 => DType::U32,
        BurnDType::U16 => DType::U16,
        // Of a quantized tensor no values are handed over.
        BurnDType::U8 | BurnDType::QFloat(_) => DType::U8,
        BurnDType::Bool(_) => DType::Bool,
    }
}

fn shape(dims: &[usize]) -> Shape {
    dims.iter()
        .map(|dim| *dim as u64)
        .collect::<Vec<_>>()
        .into()
}

/// Values on their way into a run.
struct Data<'a>(&'a TensorData);

impl Recordable for Data<'_> {
    fn dtype(&self) -> DType {
        dtype(self.0.dtype())
    }

    fn shape(&self) -> Shape {
        shape(self.0.shape())
    }

    fn with_values(&self, use_values: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError> {
        match self.0.dtype() {
            BurnDType::QFloat(scheme) => {
                return Err(unreadable(format!(
                    "a quantized tensor ({scheme:?}); dequantize it first"
                )));
            }
            BurnDType::Bool(BoolStore::U32) => {
                let words = self.0.as_bytes().chunks_exact(4);
                let bools: Vec<bool> = words
                    .map(|word| word.iter().any(|byte| *byte != 0))
                    .collect();
                use_values(&Element::le_bytes(&bools));
            }
            _ => use_values(self.0.as_bytes()),
        }
        Ok(())
    }
}

/// A tensor on its way into a run.
struct Values<'a, const D: usize, K: Basic>(&'a Tensor<D, K>);

impl<const D: usize, K: Basic> Recordable for Values<'_, D, K> {
    fn dtype(&self) -> DType {
        dtype(self.0.dtype())
    }

    fn shape(&self) -> Shape {
        shape(&self.0.shape())
    }

    fn with_values(&self, use_values: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError> {
        let data = self
            .0
            .try_to_data()
            .map_err(|error| unreadable(format!("{error:?}")))?;
        Data(&data).with_values(use_values)
    }
}

/// Records a tensor under this name, behind the names of the spans that are open: `twinscope_capture::record` for burn's tensors.
#[inline]
pub fn record<const D: usize, K: Basic>(
    name: &str,
    tensor: &Tensor<D, K>,
) -> Result<(), CaptureError> {
    if is_on() {
        Tap::new(name).record(&Values(tensor))
    } else {
        Ok(())
    }
}

/// Float, int and bool tensors.
pub trait Kind: Basic {
    /// The tensor's number on the capture device; `None` elsewhere.
    #[doc(hidden)]
    fn capture_id<const D: usize>(tensor: &Tensor<D, Self>) -> Option<u64>;

    /// Its gradient; only float tensors have one.
    #[doc(hidden)]
    fn gradient<const D: usize>(
        _tensor: &Tensor<D, Self>,
        _gradients: &Gradients,
    ) -> Option<Tensor<D>> {
        None
    }
}

macro_rules! kinds {
    ($($kind:ty { $($more:tt)* })*) => { $(
        impl Kind for $kind {
            $($more)*

            fn capture_id<const D: usize>(tensor: &Tensor<D, Self>) -> Option<u64> {
                tensor.clone().try_into_primitive::<Capture>().ok().map(|tensor| tensor.id().value())
            }
        }
    )* };
}
kinds! {
    Float {
        fn gradient<const D: usize>(tensor: &Tensor<D, Self>, gradients: &Gradients) -> Option<Tensor<D>> {
            tensor.grad(gradients)
        }
    }
    Int {}
    Bool {}
}

thread_local! {
    /// While a model runs on the capture device: what its taps said, by the tensors' numbers.
    static TAPPED: RefCell<Option<HashMap<u64, Tap>>> = const { RefCell::new(None) };
}

/// Recording in the middle of an expression: `self.mlp.forward(x).tap("mlp")`.
pub trait TapExt: Sized {
    /// Records the tensor under this name and hands it on, unchanged.
    ///
    /// burn's operations return no errors, so a recorder that is to stop the model ([`twinscope_capture::OnFailure::Stop`]) can only panic here.
    fn tap(self, name: &str) -> Self;

    /// The same with more to say.
    fn tap_with(self, tap: Tap) -> Self;
}

impl<const D: usize, K: Kind> TapExt for Tensor<D, K> {
    #[inline]
    fn tap(self, name: &str) -> Self {
        if is_on() {
            self.tap_with(Tap::new(name))
        } else {
            self
        }
    }

    fn tap_with(self, tap: Tap) -> Self {
        if !is_on() {
            return self;
        }
        if let Some(id) = TAPPED
            .with_borrow(Option::is_some)
            .then(|| K::capture_id(&self))
            .flatten()
        {
            TAPPED.with_borrow_mut(|tapped| {
                tapped
                    .as_mut()
                    .map(|tapped| tapped.insert(id, tap.placed()))
            });
        } else if let Err(error) = tap.record(&Values(&self)) {
            panic!("{error}");
        }
        self
    }
}

/// Something to do with every tensor of a module.
trait Visit {
    fn tensor<const D: usize, K: Kind>(
        &mut self,
        path: &str,
        tensor: &Tensor<D, K>,
    ) -> Result<(), CaptureError>;
}

/// Walks a module, keeping the path and the first error.
struct Walk<V> {
    path: Vec<String>,
    visit: V,
    result: Result<(), CaptureError>,
}

impl<V: Visit> Walk<V> {
    fn over<M: Module>(module: &M, visit: V) -> Result<V, CaptureError> {
        let mut walk = Self {
            path: Vec::new(),
            visit,
            result: Ok(()),
        };
        module.visit(&mut walk);
        walk.result.map(|()| walk.visit)
    }

    fn tensor<const D: usize, K: Kind>(&mut self, tensor: &Tensor<D, K>) {
        if self.result.is_ok() {
            self.result = self.visit.tensor(&self.path.join("."), tensor);
        }
    }
}

impl<V: Visit> ModuleVisitor for Walk<V> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.tensor(&param.val());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.tensor(&param.val());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.tensor(&param.val());
    }

    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}

struct Weights;

impl Visit for Weights {
    fn tensor<const D: usize, K: Kind>(
        &mut self,
        path: &str,
        tensor: &Tensor<D, K>,
    ) -> Result<(), CaptureError> {
        weight(path).record(&Values(tensor))
    }
}

fn weight(path: &str) -> Tap {
    Tap::new(path)
        .absolute()
        .role(Role::Weight)
        .phase(Phase::Weights)
}

/// Records every weight of a module under its path.
pub fn record_weights<M: Module>(module: &M) -> Result<(), CaptureError> {
    if is_on() {
        Walk::over(module, Weights).map(drop)
    } else {
        Ok(())
    }
}

struct WeightGradients<'a>(&'a Gradients);

impl Visit for WeightGradients<'_> {
    fn tensor<const D: usize, K: Kind>(
        &mut self,
        path: &str,
        tensor: &Tensor<D, K>,
    ) -> Result<(), CaptureError> {
        K::gradient(tensor, self.0).map_or(Ok(()), |gradient| {
            Tap::new(path)
                .absolute()
                .role(Role::WeightGradient)
                .phase(Phase::Backward)
                .record(&Values(&gradient))
        })
    }
}

/// Records the gradient of every weight of a module that has one.
pub fn record_gradients<M: Module>(module: &M, gradients: &Gradients) -> Result<(), CaptureError> {
    if is_on() {
        Walk::over(module, WeightGradients(gradients)).map(drop)
    } else {
        Ok(())
    }
}

/// Records the gradient of an activation that was made with `require_grad`, if there is one.
pub fn record_gradient<const D: usize>(
    name: &str,
    tensor: &Tensor<D>,
    gradients: &Gradients,
) -> Result<(), CaptureError> {
    match is_on().then(|| tensor.grad(gradients)).flatten() {
        Some(gradient) => Tap::new(name)
            .role(Role::Gradient)
            .phase(Phase::Backward)
            .record(&Values(&gradient)),
        None => Ok(()),
    }
}

#[derive(Default)]
struct Ids(HashMap<u64, String>);

impl Visit for Ids {
    fn tensor<const D: usize, K: Kind>(
        &mut self,
        path: &str,
        tensor: &Tensor<D, K>,
    ) -> Result<(), CaptureError> {
        self.0
            .extend(K::capture_id(tensor).map(|id| (id, path.to_owned())));
        Ok(())
    }
}

/// Records every operation of a model, with its inputs, weights and results.
///
/// `forward` gets the model on burn's capture device, and that device: move the inputs there. The operations it lists are then executed one by
/// one on the CPU. A model that reads values to decide what to do next cannot be listed; burn panics then, with its own message.
///
/// An operation is named after the module whose weights it uses, one without weights after what its inputs have in common, a tapped one as its tap says.
pub fn record_ops<M: Module, R>(
    model: &M,
    forward: impl FnOnce(&M, &Device) -> R,
) -> Result<(), CaptureError> {
    if !is_on() {
        return Ok(());
    }
    let device = Device::capture();
    let mut weights = Ok(Ids::default());
    let mut tapped = HashMap::new();
    let captured = device.capture_scope(|scope| {
        let model = model.valid().to_device(&device);
        weights = Walk::over(&model, Ids::default());
        let taps = Taps::listen();
        drop(forward(&model, &device));
        tapped = taps.heard();
        scope.complete([], [])
    });
    let captured = captured.map_err(|error| unreadable(format!("burn's capture: {error}")))?;
    Replay::new(weights?.0, tapped)?.run(&captured)
}

/// Taps of this thread are kept, not recorded, as long as this lives.
struct Taps;

impl Taps {
    fn listen() -> Self {
        TAPPED.set(Some(HashMap::new()));
        Self
    }

    fn heard(self) -> HashMap<u64, Tap> {
        TAPPED.take().unwrap_or_default()
    }
}

impl Drop for Taps {
    fn drop(&mut self) {
        TAPPED.set(None);
    }
}

/// Executes listed operations and records what they give.
struct Replay {
    interpreter: TensorInterpreter<Flex>,
    /// The names of the weights.
    weights: HashMap<u64, String>,
    tapped: HashMap<u64, Tap>,
    /// The record of each tensor.
    records: HashMap<u64, u64>,
    /// Where each tensor comes from: the module, and whether from weights alone (a transposed weight is one still).
    origins: HashMap<u64, Origin>,
}

#[derive(Clone, Debug, PartialEq)]
struct Origin {
    module: String,
    weight: bool,
}

impl Replay {
    fn new(weights: HashMap<u64, String>, tapped: HashMap<u64, Tap>) -> Result<Self, CaptureError> {
        let interpreter = TensorInterpreter::new(FlexDevice);
        Ok(Self {
            interpreter,
            weights,
            tapped,
            records: HashMap::new(),
            origins: HashMap::new(),
        })
    }

    fn run(mut self, captured: &CapturedGraph) -> Result<(), CaptureError> {
        self.begin(captured)?;
        for operation in &captured.graph.operations {
            if !matches!(operation, OperationIr::Init(_) | OperationIr::Drop(_)) {
                self.execute(operation)?;
            }
        }
        Ok(())
    }

    /// What is there before the first operation: weights, inputs, constants.
    fn begin(&mut self, captured: &CapturedGraph) -> Result<(), CaptureError> {
        let mut others = 0;
        for (id, data) in &captured.values {
            if matches!(data.dtype(), BurnDType::QFloat(_)) {
                return Err(unreadable(
                    "burn's interpreter executes no quantized tensors yet",
                ));
            }
            let id = id.value();
            let (tap, module, is_weight) = match self.weights.get(&id) {
                Some(path) => (
                    weight(path),
                    path.rsplit_once('.')
                        .map_or("", |(module, _)| module)
                        .to_owned(),
                    true,
                ),
                None => {
                    let tap = self
                        .tapped
                        .remove(&id)
                        .unwrap_or_else(|| Tap::new("").absolute().arg(others.to_string()));
                    others += 1;
                    (tap.role(Role::Input), String::new(), false)
                }
            };
            self.records
                .extend(tap.record_numbered(&Data(data))?.map(|i| (id, i)));
            self.origins.insert(
                id,
                Origin {
                    module,
                    weight: is_weight,
                },
            );
        }
        for (id, data) in &captured.values {
            self.interpreter.register_tensor_data_id(*id, data.clone());
        }
        Ok(())
    }

    fn execute(&mut self, operation: &OperationIr) -> Result<(), CaptureError> {
        let inputs: Vec<u64> = operation.inputs().map(|tensor| tensor.id.value()).collect();
        let outputs: Vec<TensorIr> = operation.outputs().cloned().collect();
        let started = Instant::now();
        self.interpreter.register_op(operation.clone());
        let took = started.elapsed();
        let (origin, name) = (self.origin(&inputs), op_name(operation));
        for (at, output) in outputs.iter().enumerate() {
            let id = output.id.value();
            // Read-only: a later operation still needs it.
            let data = ready(self.interpreter.read_tensor_async(TensorIr {
                status: TensorStatus::ReadOnly,
                ..output.clone()
            }));
            let data =
                data.and_then(|data| data.map_err(|error| unreadable(format!("{error:?}"))))?;
            let tap = match self.tapped.remove(&id) {
                Some(tap) => tap.role(Role::Output),
                None => Tap::new(&origin.module).absolute().role(Role::Op),
            };
            let tap = if outputs.len() > 1 {
                tap.arg(at.to_string())
            } else {
                tap
            };
            let tap = inputs
                .iter()
                .filter_map(|input| self.records.get(input))
                .fold(tap, |tap, i| tap.from_record(*i));
            let i = tap
                .op(&name)
                .phase(Phase::Forward)
                .took(took)
                .record_numbered(&Data(&data))?;
            self.records.extend(i.map(|i| (id, i)));
            self.origins.insert(id, origin.clone());
        }
        Ok(())
    }

    /// The module of the weights among the inputs; without any, what the inputs' modules have in common.
    fn origin(&self, inputs: &[u64]) -> Origin {
        let known: Vec<&Origin> = inputs
            .iter()
            .filter_map(|input| self.origins.get(input))
            .collect();
        let all_weights = !known.is_empty() && known.iter().all(|origin| origin.weight);
        let any_weight = known.iter().any(|origin| origin.weight);
        let counted = known
            .iter()
            .filter(|origin| origin.weight || !any_weight)
            .map(|origin| origin.module.as_str());
        let module = counted
            .map(str::to_owned)
            .reduce(|a, b| common_path(&a, &b))
            .unwrap_or_default();
        Origin {
            module,
            weight: all_weights,
        }
    }
}

fn common_path(a: &str, b: &str) -> String {
    let same = a.split('.').zip(b.split('.')).take_while(|(a, b)| a == b);
    same.map(|(part, _)| part).collect::<Vec<_>>().join(".")
}

/// `NumericFloat(F32, Add(BinaryOpIr { ..` is `add`: burn names operations only in its types.
fn op_name(operation: &OperationIr) -> String {
    let text = format!("{operation:?}");
    let head = text.split('{').next().unwrap_or_default();
    let words: Vec<&str> = head
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let name = words
        .len()
        .checked_sub(2)
        .and_then(|at| words.get(at))
        .or(words.first())
        .copied()
        .unwrap_or("op");
    let mut snake = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// The value of a future that is ready: the CPU computes at once.
fn ready<T>(future: impl Future<Output = T>) -> Result<T, CaptureError> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Ok(value),
        Poll::Pending => Err(unreadable("burn's CPU backend did not compute at once")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_in_common_what_they_begin_with() {
        assert_eq!(
            common_path("layers.0.attn.query", "layers.0.attn.key"),
            "layers.0.attn"
        );
        assert_eq!(common_path("layers.1", "layers.10"), "layers");
        assert_eq!(common_path("embed", "layers.0"), "");
    }
}
