//! Everything torch and pickle: zip, legacy, tar and plain pickles, TorchScript, exports, distributed checkpoints.

mod pickle;
