//! candle-transformers 0.11.1's BERT, recorded: the crate's own source, instrumented by `build.rs`.

use candle::{DType, Result, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};
use twinscope_capture::{Role, Tap};

/// The instrumented model.
#[allow(warnings, clippy::all, reason = "not our code")]
pub mod bert {
    include!(concat!(env!("OUT_DIR"), "/bert.rs"));
}

static FIXED: AtomicBool = AtomicBool::new(false);

/// Whether masked scores get the lowest number of the model's dtype (`true`), or as released `f32::MIN`, whatever the dtype.
pub fn fix_the_mask(fixed: bool) {
    FIXED.store(fixed, Ordering::Relaxed);
}

/// What the instrumented source asks for instead of writing `f32::MIN`.
fn minimum(dtype: DType) -> f32 {
    match dtype {
        // torch.finfo(dtype).min
        DType::BF16 if FIXED.load(Ordering::Relaxed) => -3.389_531_4e38,
        DType::F16 if FIXED.load(Ordering::Relaxed) => -65504.0,
        _ => f32::MIN,
    }
}

/// One forward pass, with the model's inputs and output recorded.
pub fn forward(
    model: &bert::BertModel,
    input_ids: &Tensor,
    attention_mask: &Tensor,
) -> Result<Tensor> {
    Tap::new("")
        .role(Role::Input)
        .arg("input_ids")
        .record(input_ids)?;
    Tap::new("")
        .role(Role::Input)
        .arg("attention_mask")
        .record(attention_mask)?;
    let output = model.forward(input_ids, &input_ids.zeros_like()?, Some(attention_mask))?;
    Tap::new("")
        .role(Role::Output)
        .arg("last_hidden_state")
        .from(&output)
        .record(&output)?;
    Ok(output)
}
