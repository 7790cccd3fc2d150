//! `twinscope-minilm --weights DIR --inputs FILE --out RUN [--dtype f32|bf16|f16] [--fixed]`: MiniLM in candle, recorded.

use candle::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use std::{error::Error, fs, path::PathBuf};
use twinscope_capture::{Recorder, candle as capture};
use twinscope_minilm::{bert, fix_the_mask, forward};

#[derive(Debug, serde::Deserialize)]
struct Inputs {
    input_ids: Vec<Vec<u32>>,
    attention_mask: Vec<Vec<u32>>,
}

#[derive(Debug)]
struct Arguments {
    weights: PathBuf,
    inputs: PathBuf,
    out: PathBuf,
    dtype: DType,
    fixed: bool,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let (mut weights, mut inputs, mut out, mut dtype, mut fixed) =
        (None, None, None, DType::F32, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--weights" => weights = Some(value()?.into()),
            "--inputs" => inputs = Some(value()?.into()),
            "--out" => out = Some(value()?.into()),
            "--dtype" => {
                dtype = value()?
                    .parse()
                    .map_err(|error| format!("--dtype: {error}"))?
            }
            "--fixed" => fixed = true,
            other => {
                return Err(
                    format!("unknown argument `{other}`: --weights DIR --inputs FILE --out RUN [--dtype f32|bf16|f16] [--fixed]").into()
                );
            }
        }
    }
    let needed = |name: &str| format!("{name} is needed");
    Ok(Arguments {
        weights: weights.ok_or_else(|| needed("--weights DIR"))?,
        inputs: inputs.ok_or_else(|| needed("--inputs FILE"))?,
        out: out.ok_or_else(|| needed("--out RUN"))?,
        dtype,
        fixed,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments {
        weights,
        inputs,
        out,
        dtype,
        fixed,
    } = arguments()?;
    let inputs: Inputs = serde_json::from_slice(&fs::read(inputs)?)?;
    let config: bert::Config = serde_json::from_slice(&fs::read(weights.join("config.json"))?)?;
    let device = Device::Cpu;
    let vb = VarBuilder::from_buffered_safetensors(
        fs::read(weights.join("model.safetensors"))?,
        dtype,
        &device,
    )?;
    let ids = Tensor::new(inputs.input_ids, &device)?;
    let mask = Tensor::new(inputs.attention_mask, &device)?;
    fix_the_mask(fixed);

    let label = format!(
        "candle {}{}",
        dtype.as_str(),
        if fixed { ", mask fixed" } else { "" }
    );
    let recorder = Recorder::to(&out)
        .label(label)
        .model("all-MiniLM-L6-v2")
        .framework(capture::FRAMEWORK.0, "0.11.1")
        .overwrite()
        .start()?;
    let model = bert::BertModel::load(vb, &config)?;
    let output = forward(&model, &ids, &mask)?;
    let summary = recorder.finish()?;

    let values = output
        .to_dtype(DType::F32)?
        .flatten_all()?
        .to_vec1::<f32>()?;
    let nan = values.iter().filter(|value| value.is_nan()).count();
    println!(
        "{}: {} tensors; the output has {} values, {nan} of them NaN",
        out.display(),
        summary.records,
        values.len()
    );
    Ok(())
}
