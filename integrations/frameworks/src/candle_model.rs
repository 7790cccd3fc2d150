//! The transformer in candle. Its layers come from `twinscope_capture::candle::nn` instead of `candle_nn`; that and the taps is all.

use crate::{EPSILON, Fault, HEADS, HIDDEN, LAYERS, MLP, TOKENS, VOCABULARY, weights};
use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{VarBuilder, ops::softmax};
use std::collections::HashMap;
use twinscope_capture::{
    Role, Tap,
    candle::{
        TapExt,
        nn::{Embedding, LayerNorm, Linear, embedding, layer_norm, linear},
    },
};

#[derive(Debug)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    scale: f64,
}

impl Attention {
    fn load(vb: VarBuilder<'_>, fault: Option<Fault>) -> Result<Self> {
        let linear = |name: &str| linear(HIDDEN, HIDDEN, vb.pp(name));
        let scale = if fault == Some(Fault::NoScale) {
            1.0
        } else {
            ((HIDDEN / HEADS) as f64).sqrt()
        };
        Ok(Self {
            query: linear("query")?,
            key: linear("key")?,
            value: linear("value")?,
            output: linear("output")?,
            scale,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, tokens, _) = x.dims3()?;
        let heads = |x: Tensor| {
            x.reshape((batch, tokens, HEADS, HIDDEN / HEADS))?
                .transpose(1, 2)?
                .contiguous()
        };
        let (q, k, v) = (
            heads(self.query.forward(x)?)?,
            heads(self.key.forward(x)?)?,
            heads(self.value.forward(x)?)?,
        );
        let scores = (q.matmul(&k.t()?)? / self.scale)?;
        let probabilities = softmax(&scores, D::Minus1)
            .tap_with(Tap::new("attn").role(Role::Attention).dims("b h s t"))?;
        let context = probabilities
            .matmul(&v)?
            .transpose(1, 2)?
            .reshape((batch, tokens, HIDDEN))
            .tap("attn.context")?;
        self.output.forward(&context)
    }
}

#[derive(Debug)]
struct Layer {
    norm1: LayerNorm,
    attn: Attention,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    tanh: bool,
}

impl Layer {
    fn load(vb: VarBuilder<'_>, fault: Option<Fault>) -> Result<Self> {
        let epsilon = if fault == Some(Fault::Epsilon) {
            1e-2
        } else {
            EPSILON
        };
        Ok(Self {
            norm1: layer_norm(HIDDEN, EPSILON, vb.pp("norm1"))?,
            attn: Attention::load(vb.pp("attn"), fault)?,
            norm2: layer_norm(HIDDEN, epsilon, vb.pp("norm2"))?,
            up: linear(HIDDEN, MLP, vb.pp("mlp.up"))?,
            down: linear(MLP, HIDDEN, vb.pp("mlp.down"))?,
            tanh: fault == Some(Fault::TanhGelu),
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = (x + self.attn.forward(&self.norm1.forward(x)?)?).tap("residual")?;
        let up = self.up.forward(&self.norm2.forward(&x)?)?;
        let up = if self.tanh { up.gelu() } else { up.gelu_erf() }.tap("mlp.gelu")?;
        (&x + self.down.forward(&up)?).tap("")
    }
}

/// The whole model.
#[derive(Debug)]
pub struct Model {
    embed: Embedding,
    layers: Vec<Layer>,
    norm: LayerNorm,
    head: Linear,
}

impl Model {
    pub fn load(vb: VarBuilder<'_>, fault: Option<Fault>) -> Result<Self> {
        let layer = |layer: usize| {
            Layer::load(
                vb.pp(format!("layers.{layer}")),
                fault.filter(|_| layer == 1),
            )
        };
        Ok(Self {
            embed: embedding(VOCABULARY, HIDDEN, vb.pp("embed"))?,
            layers: (0..LAYERS).map(layer).collect::<Result<_>>()?,
            norm: layer_norm(HIDDEN, EPSILON, vb.pp("norm"))?,
            head: linear(HIDDEN, VOCABULARY, vb.pp("head"))?,
        })
    }

    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let mut x = self.embed.forward(tokens)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let _span = twinscope_capture::span!("layers.{index}");
            x = layer.forward(&x)?;
        }
        self.head.forward(&self.norm.forward(&x)?)
    }
}

pub fn tokens() -> Result<Tensor> {
    Tensor::new(&TOKENS, &Device::Cpu)
}

/// Every weight by name.
pub fn weights() -> Result<HashMap<String, Tensor>> {
    let mut all = HashMap::new();
    let mut put = |name: String, values: Vec<f32>, shape: &[usize]| {
        let weight = Tensor::from_vec(values, shape, &Device::Cpu)?;
        Ok::<_, candle_core::Error>(all.insert(name, weight).is_none())
    };
    let mut linear = |path: String, inputs: usize, outputs: usize| {
        let (weight, bias) = (format!("{path}.weight"), format!("{path}.bias"));
        let values = (
            weights::values(&weight, inputs * outputs, inputs),
            weights::values(&bias, outputs, inputs),
        );
        put(weight, values.0, &[outputs, inputs])?;
        put(bias, values.1, &[outputs])
    };
    for layer in 0..LAYERS {
        for name in ["query", "key", "value", "output"] {
            linear(format!("layers.{layer}.attn.{name}"), HIDDEN, HIDDEN)?;
        }
        linear(format!("layers.{layer}.mlp.up"), HIDDEN, MLP)?;
        linear(format!("layers.{layer}.mlp.down"), MLP, HIDDEN)?;
    }
    linear("head".to_owned(), HIDDEN, VOCABULARY)?;
    let norms = (0..LAYERS).flat_map(|layer| {
        [
            format!("layers.{layer}.norm1"),
            format!("layers.{layer}.norm2"),
        ]
    });
    for norm in norms.chain(["norm".to_owned()]) {
        let (weight, bias) = (format!("{norm}.weight"), format!("{norm}.bias"));
        let values = (
            weights::near_one(&weight, HIDDEN),
            weights::values(&bias, HIDDEN, HIDDEN),
        );
        put(weight, values.0, &[HIDDEN])?;
        put(bias, values.1, &[HIDDEN])?;
    }
    let embed = "embed.weight";
    put(
        embed.to_owned(),
        weights::values(embed, VOCABULARY * HIDDEN, 3),
        &[VOCABULARY, HIDDEN],
    )?;
    Ok(all)
}

/// The model with its weights, recorded as they are loaded when something records.
pub fn model(fault: Option<Fault>) -> Result<Model> {
    let mut weights = weights()?;
    if fault == Some(Fault::QueryKey) {
        for kind in ["weight", "bias"] {
            let names = ["query", "key"].map(|name| format!("layers.1.attn.{name}.{kind}"));
            let [query, key] = names.each_ref().map(|name| weights[name].clone());
            let [first, second] = names;
            weights.extend([(first, key), (second, query)]);
        }
    }
    let vb = VarBuilder::from_tensors(weights, DType::F32, &Device::Cpu);
    Model::load(twinscope_capture::candle::weights(vb), fault)
}
