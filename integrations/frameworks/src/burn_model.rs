//! The transformer in burn, with taps where candle's layers record themselves.

use crate::{EPSILON, HEADS, HIDDEN, LAYERS, MLP, TOKENS, VOCABULARY, weights};
use burn::{
    module::{Module, Param},
    nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig},
    tensor::{Device, Int, Tensor, TensorData, activation},
};
use twinscope_capture::{Role, Tap, span};
use twinscope_capture_burn::TapExt;

#[derive(Module, Debug)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
}

#[derive(Module, Debug)]
struct Mlp {
    up: Linear,
    down: Linear,
}

#[derive(Module, Debug)]
struct Layer {
    norm1: LayerNorm,
    attn: Attention,
    norm2: LayerNorm,
    mlp: Mlp,
}

/// The whole model.
#[derive(Module, Debug)]
pub struct Model {
    embed: Embedding,
    layers: Vec<Layer>,
    norm: LayerNorm,
    head: Linear,
}

impl Attention {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, tokens, _] = x.dims();
        let heads = |x: Tensor<3>| {
            x.reshape([batch, tokens, HEADS, HIDDEN / HEADS])
                .swap_dims(1, 2)
        };
        let q = heads(self.query.forward(x.clone()).tap("query"));
        let k = heads(self.key.forward(x.clone()).tap("key"));
        let v = heads(self.value.forward(x).tap("value"));
        let scores = q.matmul(k.transpose()) / ((HIDDEN / HEADS) as f64).sqrt();
        let probabilities = activation::softmax(scores, 3)
            .tap_with(Tap::new("").role(Role::Attention).dims("b h s t"));
        let context = probabilities
            .matmul(v)
            .swap_dims(1, 2)
            .reshape([batch, tokens, HIDDEN])
            .tap("context");
        self.output.forward(context).tap("output")
    }
}

impl Layer {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let normed = self.norm1.forward(x.clone()).tap("norm1");
        let attended = {
            let _span = span("attn");
            self.attn.forward(normed)
        };
        let x = (x + attended).tap("residual");
        let up = activation::gelu(
            self.mlp
                .up
                .forward(self.norm2.forward(x.clone()).tap("norm2"))
                .tap("mlp.up"),
        )
        .tap("mlp.gelu");
        (x + self.mlp.down.forward(up).tap("mlp.down")).tap("")
    }
}

impl Model {
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let mut x = self.embed.forward(tokens).tap("embed");
        for (index, layer) in self.layers.iter().enumerate() {
            let _span = span!("layers.{index}");
            x = layer.forward(x);
        }
        self.head
            .forward(self.norm.forward(x).tap("norm"))
            .tap("head")
    }
}

pub fn tokens(device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(TensorData::from(TOKENS), device)
}

fn weight<const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    device: &Device,
) -> Param<Tensor<D>> {
    Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), device))
}

/// burn keeps `[inputs, outputs]`, the weights are written as `[outputs, inputs]`.
fn linear(path: &str, inputs: usize, outputs: usize, device: &Device) -> Linear {
    let name = format!("{path}.weight");
    let written = Tensor::<2>::from_data(
        TensorData::new(
            weights::values(&name, inputs * outputs, inputs),
            [outputs, inputs],
        ),
        device,
    );
    let mut linear = LinearConfig::new(inputs, outputs).init(device);
    linear.weight = Param::from_tensor(written.transpose());
    linear.bias = Some(weight(
        weights::values(&format!("{path}.bias"), outputs, inputs),
        [outputs],
        device,
    ));
    linear
}

fn norm(path: &str, device: &Device) -> LayerNorm {
    let mut norm = LayerNormConfig::new(HIDDEN)
        .with_epsilon(EPSILON)
        .init(device);
    norm.gamma = weight(
        weights::near_one(&format!("{path}.weight"), HIDDEN),
        [HIDDEN],
        device,
    );
    norm.beta = Some(weight(
        weights::values(&format!("{path}.bias"), HIDDEN, HIDDEN),
        [HIDDEN],
        device,
    ));
    norm
}

/// The model with its weights.
pub fn model(device: &Device) -> Model {
    let mut embed = EmbeddingConfig::new(VOCABULARY, HIDDEN).init(device);
    embed.weight = weight(
        weights::values("embed.weight", VOCABULARY * HIDDEN, 3),
        [VOCABULARY, HIDDEN],
        device,
    );
    let layer = |layer: usize| {
        let path = |name: &str| format!("layers.{layer}.{name}");
        let attention = |name: &str| linear(&path(&format!("attn.{name}")), HIDDEN, HIDDEN, device);
        Layer {
            norm1: norm(&path("norm1"), device),
            attn: Attention {
                query: attention("query"),
                key: attention("key"),
                value: attention("value"),
                output: attention("output"),
            },
            norm2: norm(&path("norm2"), device),
            mlp: Mlp {
                up: linear(&path("mlp.up"), HIDDEN, MLP, device),
                down: linear(&path("mlp.down"), MLP, HIDDEN, device),
            },
        }
    };
    Model {
        embed,
        layers: (0..LAYERS).map(layer).collect(),
        norm: norm("norm", device),
        head: linear("head", HIDDEN, VOCABULARY, device),
    }
}
