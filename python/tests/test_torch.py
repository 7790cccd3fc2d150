"""Real torch models, captured and compared through the whole chain."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import twinscope
from conftest import index, records
from models import Mlp, Transformer, ids, llama, transformer
from torch import Tensor, nn
from torch.nn import functional as F


def captured(model: nn.Module, path: Path, *args: Any, **settings: Any) -> Path:
    with twinscope.capture(model, path, **settings), torch.no_grad():
        model(*args)
    return path


def by_name(run: Path) -> dict[str, dict[str, Any]]:
    """Records by module path and role."""
    return {f"{line['name']}:{line['role']}{':' + line['arg'] if line['arg'] else ''}": line for line in records(run)}


def test_the_same_model_captured_twice_is_identical(tmp_path: Path) -> None:
    model = transformer()
    runs = [captured(model, tmp_path / name, ids(), params=True) for name in "ab"]
    report = twinscope.diff(*runs)
    assert report.agree and {pair.verdict for pair in report} == {"identical"}
    assert len(report) > 60


def test_capturing_changes_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    model = transformer()
    before = model(ids()).logits
    with twinscope.capture(model, tmp_path / "run", ops=True, grads=True, params=True):
        during = model(ids()).logits
    assert torch.equal(before, during) and torch.equal(before, model(ids()).logits)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert "forward" not in model.__dict__


def fault_scale(model: Transformer) -> None:
    model.layers[1].mlp.up.weight.data *= 2
    model.layers[1].mlp.up.bias.data *= 2


def fault_function(model: Transformer) -> None:
    model.layers[2].mlp.act = nn.GELU(approximate="tanh")


def fault_missing_bias(model: Transformer) -> None:
    model.layers[1].attn.k_proj.bias.data.zero_()


def fault_epsilon(model: Transformer) -> None:
    model.layers[0].mlp_norm.eps = 1e-2


def fault_heads(model: Transformer) -> None:
    values = model.layers[0].attn.v_proj
    values.weight.data = values.weight.data.view(4, 8, 32).flip(0).reshape(32, 32).clone()
    values.bias.data = values.bias.data.view(4, 8).flip(0).reshape(32).clone()


@pytest.mark.parametrize(
    ("fault", "name", "kind"),
    [
        (fault_scale, "layers.1.mlp.up", "scale"),
        (fault_function, "layers.2.mlp.act", "function"),
        (fault_missing_bias, "layers.1.attn.k_proj", "offset"),
        (fault_epsilon, "layers.0.mlp_norm", "row_scale"),
        (fault_heads, "layers.0.attn.v_proj", "permuted"),
    ],
)
def test_a_fault_in_one_layer_is_found_by_name_with_its_cause(
    tmp_path: Path, fault: Callable[[Transformer], None], name: str, kind: str
) -> None:
    model = transformer()
    good = captured(model, tmp_path / "good", ids())
    fault(model)
    report = twinscope.diff(good, captured(model, tmp_path / "bad", ids()))
    assert report.verdict == "diverged"
    assert report.first is not None and report.first.name == name
    assert all(pair.verdict == "identical" for pair in report.pairs[: report.first.order])
    assert report.first.causes[0].kind == kind, report.first.causes


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "written out"])
@pytest.mark.parametrize(
    ("fault", "value", "first", "kind"),
    [
        ("theta", 500000.0, ".in.", "rotated"),
        ("offset", 1, ".in.", "rotated"),
        ("tiled", True, ".in.", "permuted"),
        ("scale", 1.0, ".attn", "softmax_scale"),
        ("causal", False, ".attn", "masked"),
    ],
)
def test_what_attention_is_given_and_decides_is_recorded_so_its_faults_have_causes(
    tmp_path: Path, fused: bool, fault: str, value: object, first: str, kind: str
) -> None:
    tokens = torch.randint(0, 50, (2, 24), generator=torch.Generator().manual_seed(1))
    reference = captured(llama(fused=fused), tmp_path / "a", tokens)
    broken = llama(fused=fused)
    setattr(broken.layers[1].attn, fault, value)
    report = twinscope.diff(reference, captured(broken, tmp_path / "b", tokens))
    assert report.first is not None and report.first.name.startswith("layers.1.attn") and first in report.first.name
    assert report.first.causes[0].kind == kind, report.first.causes


def test_a_residual_that_is_not_added_is_found_at_the_norm_that_reads_the_sum(tmp_path: Path) -> None:
    reference = captured(llama(), tmp_path / "a", ids())
    broken = llama()
    broken.layers[2].residual = False
    report = twinscope.diff(reference, captured(broken, tmp_path / "b", ids()))
    assert report.first is not None and report.first.name == "layers.2.post_norm.in"
    assert report.first.causes[0].kind == "missing_term"
    assert not report.only_reference and not report.only_candidate


def test_a_norms_input_is_a_second_name_where_a_module_returned_it(tmp_path: Path) -> None:
    found = by_name(captured(llama(), tmp_path / "run", ids()))
    assert found["layers.1.input_norm:in:0"]["same"] == found["layers.0:out"]["i"]
    assert found["layers.1.input_norm:out"]["inputs"] == [found["layers.0:out"]["i"]]
    # A sum is nobody's output: it is stored here.
    assert "seg" in found["layers.1.post_norm:in:0"]


def test_a_router_shows_its_probabilities_and_what_it_chose(tmp_path: Path) -> None:
    found = {(line["op"], line["arg"]): line for line in records(captured(llama(), tmp_path / "run", ids())) if line["role"] == "op"}
    softmax, chosen = found["softmax", ""], found["topk", "indices"]
    assert softmax["name"] == "layers.2.moe" and softmax["shape"] == [2, 8, 4]
    assert chosen["inputs"] == [softmax["i"]] and chosen["dtype"] == "I64"


def test_attention_weights_that_are_also_recorded_by_hand_are_there_once(tmp_path: Path) -> None:
    class Attention(nn.Module):
        def forward(self, scores: Tensor) -> Tensor:
            return twinscope.record("", scores.softmax(-1), role="attn") * 2

    captured(Attention(), tmp_path / "run", torch.randn(1, 2, 3, 3))
    assert [line["role"] for line in records(tmp_path / "run")] == ["in", "attn", "out"]


def test_another_dtype_is_rounding(tmp_path: Path) -> None:
    model = transformer()
    single = captured(model, tmp_path / "f32", ids())
    double = captured(model.double(), tmp_path / "f64", ids())
    report = twinscope.diff(single, double)
    assert report.agree and "rounding" in {pair.verdict for pair in report}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 16, num_layers=2, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))


@pytest.mark.parametrize(
    ("build", "shape", "broken"),
    [(transformer, None, "layers.1.mlp.up"), (convolutional, (2, 3, 12, 12), "3"), (Recurrent, (2, 10, 8), "rnn")],
    ids=["transformer", "convolutions", "recurrent"],
)
def test_models_in_bf16_are_identical_twice_and_their_faults_are_found(
    tmp_path: Path, build: Callable[[], nn.Module], shape: tuple[int, ...] | None, broken: str
) -> None:
    torch.manual_seed(0)
    model = build().eval().bfloat16()
    given = ids() if shape is None else torch.randn(shape).bfloat16()
    runs = [captured(model, tmp_path / name, given) for name in "ab"]
    assert {line["dtype"] for line in records(runs[0]) if line["role"] == "out"} == {"BF16"}
    twice = twinscope.diff(*runs)
    assert twice.agree and {pair.verdict for pair in twice} == {"identical"}
    with torch.no_grad():
        next(model.get_submodule(broken).parameters()).mul_(2)
    report = twinscope.diff(runs[0], captured(model, tmp_path / "c", given))
    assert report.verdict == "diverged"
    assert report.first is not None and f"{report.first.name}.".startswith(f"{broken}."), report.first
    assert all(pair.verdict == "identical" for pair in report.pairs[: report.first.order])


def test_names_are_module_paths_in_the_order_modules_return(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    captured(model, tmp_path / "run", torch.ones(1, 4))
    assert twinscope.ls(tmp_path / "run").names == ["model.in", "0", "1", "2", "model"]
    assert [line["cls"] for line in records(tmp_path / "run")[1:]] == ["Linear", "ReLU", "Linear", "Sequential"]


def test_every_record_names_the_records_it_was_computed_from(tmp_path: Path) -> None:
    captured(transformer(), tmp_path / "run", ids(), params=True)
    found = by_name(tmp_path / "run")
    names = {line["i"]: key for key, line in found.items()}

    def made_from(key: str) -> set[str]:
        return {names[i] for i in found[key]["inputs"]}

    assert made_from("embed:out") == {":in:0", "embed.weight:param"}
    assert made_from("layers.0.attn.q_proj:out") == {
        "layers.0.attn_norm:out", "layers.0.attn.q_proj.weight:param", "layers.0.attn.q_proj.bias:param",
    }  # fmt: skip
    # A residual sum belongs to no module: it is recorded as what the next module was given, and comes from both terms.
    assert made_from("layers.0.mlp_norm:out") >= {"layers.0.mlp_norm:in:0"}
    assert made_from("layers.0.mlp_norm:in:0") == {"embed:out", "layers.0.attn.o_proj:out"}
    assert made_from("layers.0.attn.o_proj:in:0") == {f"layers.0.attn.{part}_proj:out" for part in "qkv"}
    assert made_from("layers.0:out") == {"layers.0.mlp_norm:in:0", "layers.0.mlp.down:out"}
    # Queries and keys reach the attention as views of what the projections gave.
    assert made_from("layers.0.attn:attn") == {"layers.0.attn.q_proj:out", "layers.0.attn.k_proj:out"}
    assert all(i < line["i"] for line in found.values() for i in line.get("inputs", []))


def test_a_module_that_returns_what_it_was_given_is_not_stored_again(tmp_path: Path) -> None:
    captured(transformer(), tmp_path / "run", ids())
    found = by_name(tmp_path / "run")
    assert found["layers.0.mlp.drop:out"]["same"] == found["layers.0.mlp.down:out"]["i"]
    assert found["layers.0.mlp:out"]["same"] == found["layers.0.mlp.down:out"]["i"]
    assert "off" not in found["layers.0.mlp:out"]


def test_a_tensor_changed_in_place_is_another_one(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    torch.manual_seed(0)
    captured(model, tmp_path / "run", torch.randn(2, 4))
    shown = {name: torch.tensor(twinscope.show(tmp_path / "run", name)["values"]) for name in ("0", "1")}
    assert (shown["0"] < 0).any() and torch.equal(shown["1"], shown["0"].relu())
    found = by_name(tmp_path / "run")
    assert found["2:out"]["inputs"] == [found["1:out"]["i"]]


def test_inference_mode_gives_the_same_run(tmp_path: Path) -> None:
    model = transformer()
    usual = captured(model, tmp_path / "usual", ids())
    with torch.inference_mode(), twinscope.capture(model, tmp_path / "inference"):
        model(ids())
    report = twinscope.diff(usual, tmp_path / "inference")
    assert report.agree and {pair.verdict for pair in report} == {"identical"}


def test_changes_in_place_are_seen_in_inference_mode_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    with torch.inference_mode(), twinscope.capture(model, tmp_path / "run"):
        model(torch.randn(2, 4, generator=torch.Generator().manual_seed(0)))
    found = by_name(tmp_path / "run")
    assert "same" not in found["1:out"] or found["1:out"]["same"] != found["0:out"]["i"]


def test_attention_weights_of_the_fused_kernel_are_recorded(tmp_path: Path) -> None:
    model = transformer()
    captured(model, tmp_path / "run", ids())
    weights = torch.tensor(twinscope.show(tmp_path / "run", "layers.0.attn.attn", full=True)["values"])
    assert weights.shape == (2, 4, 8, 8)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 8)) and (weights.triu(1) == 0).all()
    attn, x = model.layers[0].attn, model.layers[0].attn_norm(model.embed(ids()))
    values = attn.v_proj(x).view(2, 8, 4, 8).transpose(1, 2)
    assert torch.allclose(attn.o_proj((weights @ values).transpose(1, 2).reshape(2, 8, 32)), attn(x), atol=1e-6)
    captured(model, tmp_path / "without", ids(), attention=False)
    assert not any(line["role"] == "attn" for line in records(tmp_path / "without"))


@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("grouped", [False, True])
def test_attention_weights_are_those_of_torch(tmp_path: Path, mask: str | None, grouped: bool) -> None:
    from twinscope._torch.attention import attention_weights

    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 2 if grouped else 4, 6, 8), torch.randn(2, 2 if grouped else 4, 6, 8)
    given = {None: None, "bool": torch.rand(5, 6) > 0.3, "float": torch.randn(5, 6)}[mask]
    if mask == "bool":
        given[:, 0] = True  # no row without a key
    weights = attention_weights(query, key, given, False, 0.3, grouped)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=given, scale=0.3, enable_gqa=grouped)
    assert torch.allclose(weights @ (value.repeat_interleave(2, 1) if grouped else value), expected, atol=1e-6)


def test_outputs_in_tuples_dicts_and_dataclasses_have_their_place(tmp_path: Path) -> None:
    class Many(nn.Module):
        def forward(self, x: Tensor, *, mask: Tensor) -> dict[str, Any]:
            return {"a": x + 1, "more": (x + 2, [x * mask]), "text": "no tensor", "none": None}

    with twinscope.capture(Many(), tmp_path / "run") as run:
        run._model(torch.ones(2), mask=torch.zeros(2))
    assert twinscope.ls(tmp_path / "run").names == ["model.in", "model.in.mask", "model.a", "model.more.0", "model.more.1.0"]
    captured(transformer(), tmp_path / "data", ids())
    assert "model.hidden.2" in twinscope.ls(tmp_path / "data").names


def test_each_token_of_a_generation_is_a_call_or_a_step(tmp_path: Path) -> None:
    model = transformer()

    def generate() -> None:
        tokens = ids()
        for _ in range(3):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], 1)

    with twinscope.capture(model, tmp_path / "calls", include="head", inputs=False):
        generate()
    assert twinscope.ls(tmp_path / "calls").names == ["head", "head@1", "head@2"]
    with twinscope.capture(model, tmp_path / "steps", include="head", inputs=False, step_per_call=True, steps=[0, 2]):
        generate()
    assert twinscope.ls(tmp_path / "steps").names == ["head", "step-2/head"]


def test_gradients_of_outputs_and_weights_are_those_of_torch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    with twinscope.capture(model, tmp_path / "run", grads=True):
        model(torch.ones(3, 4)).sum().backward()
    names = twinscope.ls(tmp_path / "run").names
    backward = names[names.index("model") + 1 :]
    assert set(backward) == {"0.grad", "1.grad", "2.grad", "model.grad"} | {f"{at}.{part}.param_grad" for at in "02" for part in ("weight", "bias")}
    assert backward.index("2.grad") < backward.index("1.grad") < backward.index("0.grad")
    shown = torch.tensor(twinscope.show(tmp_path / "run", "0.weight.param_grad")["values"])
    assert torch.equal(shown, model[0].weight.grad)


def test_a_wrong_gradient_is_found_by_name(tmp_path: Path) -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.tanh()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient * 0.5

    class Act(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Broken.apply(x)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    for name in ("good", "bad"):
        model.zero_grad()
        with twinscope.capture(model, tmp_path / name, grads=True):
            model(torch.ones(3, 4)).sum().backward()
        model[1] = Act()
    report = twinscope.diff(tmp_path / "good", tmp_path / "bad")
    assert report.first is not None and report.first.name == "0.grad"


def test_every_operation_is_recorded_under_its_module(tmp_path: Path) -> None:
    captured(transformer(), tmp_path / "run", ids(), ops=True)
    ops = [line for line in records(tmp_path / "run") if line["role"] == "op"]
    assert {"aten.embedding", "aten.native_layer_norm", "aten.addmm", "aten.gelu", "aten.add"} <= {line["op"] for line in ops}
    add = [line for line in ops if line["op"] == "aten.add" and line["name"] == "layers.0"]
    assert len(add) == 2 and add[1]["call"] == 1
    # The sum is what the norm after it is given, and it knows both of its terms.
    found = by_name(tmp_path / "run")
    assert found["layers.0.mlp_norm:out"]["inputs"] == [add[0]["i"]]
    assert found["layers.0.attn:out"]["same"] in add[0]["inputs"]
    assert not any(line["op"] in ("aten.view", "aten.transpose", "aten.t", "aten._to_copy") for line in ops)
    # It is there already, so the norm's input is a name for it.
    assert found["layers.0.mlp_norm:in:0"]["same"] == add[0]["i"]


def test_what_happens_between_modules_is_followed_in_place_too(tmp_path: Path) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            y += self.b(x)
            z = torch.zeros(2, 4)
            z[:, :2] = y[:, :2].exp()
            return self.c(z)

    captured(Residual(), tmp_path / "run", torch.ones(2, 4))
    found = by_name(tmp_path / "run")
    assert found["c:in:0"]["inputs"] == [found["a:out"]["i"], found["b:out"]["i"]]
    captured(Residual(), tmp_path / "without", torch.ones(2, 4), flow=False)
    assert "inputs" not in by_name(tmp_path / "without")["c:in:0"]


def test_operations_in_place_are_followed(tmp_path: Path) -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y.add_(1)
            return y.sqrt()

    captured(InPlace(), tmp_path / "run", torch.ones(3), ops=True)
    ops = {line["op"]: line for line in records(tmp_path / "run") if line["role"] == "op"}
    assert ops["aten.add_"]["inputs"] == [ops["aten.mul"]["i"]]
    assert ops["aten.sqrt"]["inputs"] == [ops["aten.add_"]["i"]]


def test_the_recorders_own_operations_are_not_recorded(tmp_path: Path) -> None:
    captured(nn.Linear(3, 3), tmp_path / "run", torch.ones(1, 3), ops=True, params=True, sync=True)
    assert [line["op"] for line in records(tmp_path / "run") if line["role"] == "op"] == ["aten.addmm"]


def test_two_captures_at_once_do_not_record_each_other(tmp_path: Path) -> None:
    model, x = nn.Linear(3, 3), torch.ones(1, 3)
    with twinscope.capture(model, tmp_path / "a", ops=True), twinscope.capture(model, tmp_path / "b", ops=True):
        model(x)
    for name in "ab":
        assert [line["op"] for line in records(tmp_path / name) if line["role"] == "op"] == ["aten.addmm"]


def test_weights_and_buffers_come_first_and_tied_ones_once(tmp_path: Path) -> None:
    model = transformer()
    model.head.weight = model.embed.weight
    model.register_buffer("table", torch.arange(3))
    captured(model, tmp_path / "run", ids(), params=True)
    found = by_name(tmp_path / "run")
    assert found["head.weight:param"]["same"] == found["embed.weight:param"]["i"]
    assert found["table:param"]["i"] < found[":in:0"]["i"]


def test_a_record_inside_a_model_knows_where_it_came_from(tmp_path: Path) -> None:
    class Tapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            q, _ = twinscope.record("split", self.fc(x)).chunk(2, -1)
            return twinscope.record("q", q)

    captured(nn.Sequential(Tapped()), tmp_path / "nested", torch.ones(2, 4))
    assert twinscope.ls(tmp_path / "nested").names == ["model.in", "0.fc", "0.split", "0.q", "0", "model"]
    captured(Tapped(), tmp_path / "run", torch.ones(2, 4))
    found = by_name(tmp_path / "run")
    assert found["split:tap"]["same"] == found["fc:out"]["i"]
    assert found["q:tap"]["inputs"] == [found["fc:out"]["i"]] and found[":out"]["same"] == found["q:tap"]["i"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128, torch.bool])
def test_every_dtype_is_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    value = torch.tensor([0.0, 1.0, 0.5]).to(dtype)
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("x", value)
        twinscope.record("view", value[1:])
    shown = twinscope.show(tmp_path / "run", "x")["values"]
    assert [complex(*item) if isinstance(item, list) else item for item in shown] == value.to(torch.complex64 if value.is_complex() else torch.float32).tolist()


def test_odd_tensors_do_not_stop_the_model(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {
                "fine": x.T, "conj": torch.view_as_complex(x).conj(), "sparse": x.to_sparse(), "meta": x.to("meta"),
                "expanded": x[:1].expand(4, 2), "parameter": nn.Parameter(x),
            }  # fmt: skip

    x = torch.arange(6.0).reshape(3, 2)
    captured(Odd(), tmp_path / "run", x)
    listing = twinscope.ls(tmp_path / "run")
    assert set(listing.names) == {"model.in", "model.fine", "model.conj", "model.expanded", "model.parameter"}
    assert {skipped.name for skipped in listing.skipped} == {"model.sparse", "model.meta"}
    assert twinscope.show(tmp_path / "run", "model.fine")["values"] == x.T.tolist()
    assert twinscope.show(tmp_path / "run", "model.conj")["values"][1] == [2, -3]


def test_a_model_whose_forward_is_called_directly_is_recorded(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with twinscope.capture(model, tmp_path / "run"):
        model.forward(torch.ones(1, 2))
    assert twinscope.ls(tmp_path / "run").names == ["model.in", "0", "model"]


def test_an_exception_in_the_model_keeps_what_ran_before(tmp_path: Path) -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("no")

    model = nn.Sequential(nn.Linear(2, 2), Fails())
    with pytest.raises(ValueError, match="^no$"):
        captured(model, tmp_path / "run", torch.ones(1, 2))
    assert twinscope.ls(tmp_path / "run").names == ["model.in", "0"]
    assert not model[0]._forward_hooks
    # A call after one that failed is nested in nothing.
    with twinscope.capture(model, tmp_path / "again"):
        with pytest.raises(ValueError, match="^no$"):
            model(torch.ones(1, 2))
        model[1] = nn.Identity()
        model(torch.ones(1, 2))
    assert twinscope.ls(tmp_path / "again").names == ["model.in", "0", "model.in@1", "0@1", "model@1"]


def test_activation_checkpointing_is_recorded_once(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.fc, x, use_reentrant=False)

    model = Checkpointed()
    with twinscope.capture(model, tmp_path / "run", grads=True):
        model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    names = twinscope.ls(tmp_path / "run").names
    assert "fc" in names and "fc@1" not in names and "fc.weight.param_grad" in names


def test_wrappers_do_not_change_names(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    captured(torch.compile(model, backend="eager"), tmp_path / "compiled", torch.ones(1, 2))
    captured(nn.DataParallel(model), tmp_path / "parallel", torch.ones(1, 2))
    for name in ("compiled", "parallel"):
        assert twinscope.ls(tmp_path / name).names == ["model.in", "0", "model"]


def test_statistics_alone_take_no_room(tmp_path: Path) -> None:
    captured(transformer(), tmp_path / "run", ids(), stats_only=True)
    lines = records(tmp_path / "run")
    assert all("stats" in line or "same" in line for line in lines)
    assert not list((tmp_path / "run").glob("rank-*/seg-*"))


def test_modules_have_their_times(tmp_path: Path) -> None:
    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            time.sleep(0.05)
            return x + 1

    captured(nn.Sequential(Slow(), nn.ReLU()), tmp_path / "run", torch.ones(1))
    spans = {line["name"]: line["dur"] for line in index(tmp_path / "run") if line["k"] == "x"}
    assert set(spans) == {"0", "1", ""} and spans["0"] >= 50_000_000 and spans[""] >= spans["0"]


def test_a_model_that_is_no_model_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="twinscope.record"):
        twinscope.capture(lambda x: x, tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="where to"):
        twinscope.capture(Mlp(4))
    assert not (tmp_path / "run").exists()


def test_tensor_parallel_classes_say_how_they_are_split(tmp_path: Path) -> None:
    class ColumnParallelLinear(nn.Linear):
        gather_output = False

    class RowParallelLinear(nn.Linear):
        reduce_results = False

    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 4, bias=False))
    x = torch.randn(3, 4)
    captured(whole, tmp_path / "whole", x, include=["0", "1"], inputs=False)
    for rank in range(2):
        column, row = ColumnParallelLinear(4, 4, bias=False), RowParallelLinear(4, 4, bias=False)
        column.weight.data = whole[0].weight.data[rank * 4 : rank * 4 + 4]
        row.weight.data = whole[1].weight.data[:, rank * 4 : rank * 4 + 4]
        captured(nn.Sequential(column, row), tmp_path / "ranks", x, include=["0", "1"], inputs=False, rank=rank, world_size=2)
    assert [line["dims"] for line in records(tmp_path / "ranks")] == ["d0 d1[tp]", "d0 d1[tp:partial]"]
    report = twinscope.diff(tmp_path / "whole", tmp_path / "ranks")
    assert report.agree and len(report) == 2
    assert all(pair.layout is not None and pair.layout.by == "declared" for pair in report)


DISTRIBUTED = """
    import torch, torch.distributed as dist, twinscope
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    parallelize_module(model, mesh, {"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel()})
    with twinscope.capture(model, "ranks", attention=False), torch.no_grad():
        model(torch.arange(12.0).reshape(3, 4))
    dist.destroy_process_group()
"""


def test_a_tensor_parallel_model_of_torch_compares_with_the_whole(tmp_path: Path, script: Callable[..., subprocess.Popen[str]]) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launch = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [script(DISTRIBUTED, RANK=str(rank), **launch) for rank in range(2)]
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err
    line = by_name(tmp_path / "ranks")["0:out"]
    assert line["global_shape"] == [3, 8] and line["shape"] == [3, 4] and line["dims"] == "d0 d1[tp]" and "placements" in line
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    captured(model, tmp_path / "whole", torch.arange(12.0).reshape(3, 4))
    report = twinscope.diff(tmp_path / "whole", tmp_path / "ranks", allow_missing=True)
    assert report.verdict == "agree", report
    assert {"0", "1", "2"} <= {pair.name for pair in report}


def test_kill_9_in_the_middle_of_a_model_loses_nothing(tmp_path: Path, script: Callable[..., subprocess.Popen[str]]) -> None:
    process = script("""
        import os, signal, torch, twinscope
        class Kill(torch.nn.Module):
            def forward(self, x):
                os.kill(os.getpid(), signal.SIGKILL)
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(24)], Kill())
        with twinscope.capture(model, "run"):
            model(torch.ones(500, 64))
    """)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while len(records(tmp_path / "run")) < 25 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert twinscope.ls(tmp_path / "run").names == ["model.in", *map(str, range(24))]
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(24)])
    report = twinscope.diff(captured(model, tmp_path / "whole", torch.ones(500, 64)), tmp_path / "run", allow_missing=True)
    assert report.verdict == "agree" and len(report) == 25
