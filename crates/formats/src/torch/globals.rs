//! Which callables a pickle may name without being talked about, which make it an attack, and which are just unknown.
//!
//! Nothing is ever called, so the question is only what the user must be told: a name that can execute, import, open or
//! reach out is a finding of its own; an unknown class is an opaque object whose tensors are still listed.

use super::pickle::{Graph, Id, Node, unpickle};
use crate::{contents::Contents, limits::Limits};
use std::collections::HashSet;
use twinscope_tensor::FindingKind;

/// What a name means when it appears in a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Known and harmless.
    Inert,
    /// Could execute or escape if it were called.
    Unsafe,
    /// Harmless or not depending on what it is given: `getattr` and `partial`.
    Depends,
    Opaque,
}

/// Python builtins that are plain data or make plain data.
const BUILTINS: &[&str] = &[
    "set",
    "frozenset",
    "bytearray",
    "complex",
    "list",
    "dict",
    "tuple",
    "bytes",
    "slice",
    "range",
    "xrange",
    "object",
    "int",
    "long",
    "float",
    "str",
    "unicode",
    "bool",
    "Ellipsis",
    "NotImplemented",
    "NoneType",
    "iter",
    "reversed",
    "enumerate",
    "zip",
];

/// Everything in these modules can execute, import, open or reach out, but for the exceptions in [`ALLOWED`].
const DENIED_MODULES: &[&str] = &[
    "os",
    "posix",
    "nt",
    "posixpath",
    "ntpath",
    "subprocess",
    "_posixsubprocess",
    "sys",
    "runpy",
    "pydoc",
    "webbrowser",
    "socket",
    "_socket",
    "socketserver",
    "shutil",
    "ctypes",
    "_ctypes",
    "importlib",
    "_imp",
    "imp",
    "pkgutil",
    "zipimport",
    "pickle",
    "_pickle",
    "cPickle",
    "shelve",
    "marshal",
    "code",
    "codeop",
    "pty",
    "tty",
    "commands",
    "popen2",
    "asyncio",
    "multiprocessing",
    "_multiprocessing",
    "concurrent",
    "threading",
    "_thread",
    "thread",
    "builtins",
    "__builtin__",
    "torch.jit",
    "torch.hub",
    "torch.load",
    "torch.save",
    "torch.serialization",
    "torch.package",
    "torch.multiprocessing",
    "torch.utils.cpp_extension",
    "torch.utils.model_zoo",
    "torch.utils.collect_env",
    "torch.utils.bottleneck",
    "torch.utils.data.datapipes.utils",
    "torch.utils._config_module",
    "torch.distributed.rpc",
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.elastic",
    "torch.distributed.launcher",
    "torch._inductor",
    "torch._dynamo",
    "torch.fx.graph_module",
    "torch.ops",
    "torch.classes",
    "torch.compile",
    "torch._C._jit_pass_lint",
    "torch.testing",
    "torch.onnx",
    "torch.from_file",
    "torch.library",
    "numpy.testing",
    "numpy.load",
    "numpy.save",
    "numpy.savez",
    "numpy.loadtxt",
    "numpy.genfromtxt",
    "numpy.fromfile",
    "numpy.memmap",
    "numpy.f2py",
    "numpy.distutils",
    "numpy.ctypeslib",
    "numpy.lib.npyio",
    "numpy.lib._npyio_impl",
    "numpy.lib.format",
    "numpy.lib.utils",
    "numpy.vectorize",
    "numpy.frompyfunc",
    "numpy.apply_along_axis",
    "numpy.apply_over_axes",
    "numpy.fromfunction",
    "numpy.piecewise",
    "pandas.read_pickle",
    "pandas.io",
    "pandas.eval",
    "pandas.core.computation",
    "joblib",
    "dill",
    "cloudpickle",
    "cloudpickle.cloudpickle",
    "sklearn.externals.joblib",
    "scipy.io",
    "tensorflow.io",
    "keras.models",
    "keras.saving",
    "timeit",
    "operator",
    "_operator",
    "functools",
    "types",
    "_testcapi",
    "inspect",
    "dis",
    "ast",
    "tempfile",
    "urllib",
    "urllib2",
    "urllib3",
    "requests",
    "httpx",
    "aiohttp",
    "http",
    "httplib",
    "ftplib",
    "ssl",
    "_ssl",
    "pip",
    "setuptools",
    "pkg_resources",
    "distutils",
    "ensurepip",
    "venv",
    "bdb",
    "pdb",
    "cProfile",
    "profile",
    "_lsprof",
    "trace",
    "doctest",
    "unittest",
    "site",
    "sitecustomize",
    "platform",
    "nturl2path",
    "getpass",
    "signal",
    "_signal",
    "faulthandler",
    "smtplib",
    "poplib",
    "imaplib",
    "telnetlib",
    "xmlrpc",
    "xmlrpclib",
    "zipfile",
    "tarfile",
    "gzip",
    "bz2",
    "lzma",
    "io",
    "_io",
    "codecs",
    "_codecs",
    "fileinput",
    "linecache",
    "glob",
    "mmap",
    "select",
    "selectors",
    "sched",
    "atexit",
    "gc",
    "weakref",
    "_weakref",
    "resource",
    "syslog",
    "crypt",
    "pwd",
    "grp",
    "sqlite3",
    "_sqlite3",
    "dbm",
    "curses",
    "readline",
    "rlcompleter",
    "idlelib",
    "lib2to3",
    "turtle",
    "turtledemo",
    "tkinter",
    "Tkinter",
    "antigravity",
    "this",
    "cgi",
    "wsgiref",
    "compileall",
    "py_compile",
    "symtable",
    "logging.config",
    "logging.handlers",
    "logging.FileHandler",
    "contextlib",
    "_aix_support",
    "_osx_support",
    "_pyrepl",
    "_bootsubprocess",
    "_xxsubinterpreters",
    "_interpreters",
    "test.support",
    "winreg",
    "_winreg",
    "_winapi",
    "msvcrt",
    "msilib",
    "plumbum",
    "sh",
    "pexpect",
    "paramiko",
    "fabric",
    "IPython",
    "ipykernel",
    "nbformat",
    "jupyter_client",
    "uvicorn",
    "flask",
    "django",
    "jinja2",
    "yaml",
    "ruamel",
    "execnet",
    "psutil",
    "fsspec",
    "smart_open",
    "boto3",
    "huggingface_hub",
    "transformers.pipelines",
    "transformers.utils.hub",
    "transformers.dynamic_module_utils",
    "nltk",
    "cffi",
    "_cffi_backend",
    "numexpr",
    "numba",
    "llvmlite",
    "sympy.sympify",
    "sympy.parsing",
];

/// Exceptions to [`DENIED_MODULES`], and other names that are known not to do anything.
const ALLOWED: &[&str] = &[
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.Counter",
    "collections.deque",
    "torch.Size",
    "torch.device",
    "torch.dtype",
    "torch.serialization._get_layout",
    "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer",
    "torch.nn.parameter.UninitializedParameter",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_sparse_csr_tensor",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_wrapper_subclass",
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._utils._rebuild_xla_tensor",
    "torch._tensor._rebuild_from_type_v2",
    "torch._tensor._rebuild_from_type",
    "torch.tensor._rebuild_from_type",
    "torch.tensor._rebuild_from_type_v2",
    "torch.nested._internal.nested_tensor._rebuild_njt",
    "torch.nested._internal.nested_tensor.NestedTensor",
    "torch.storage._load_from_bytes",
    "torch.Tensor",
    "_codecs.encode",
    "codecs.encode",
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.ma.core._mareconstruct",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.core.numeric._frombuffer",
    "numpy._core.numeric._frombuffer",
    "copy_reg._reconstructor",
    "copyreg._reconstructor",
    "copyreg.__newobj__",
    "copy_reg.__newobj__",
    "torch.jit._pickle.build_intlist",
    "torch.jit._pickle.build_tensorlist",
    "torch.jit._pickle.build_doublelist",
    "torch.jit._pickle.build_boollist",
    "torch.jit._pickle.build_tensor_from_id",
    "torch.jit._pickle.restore_type_tag",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib.PurePosixPath",
    "pathlib.PureWindowsPath",
    "pathlib.Path",
    "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
    "functools.cmp_to_key",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
];

/// In a denied module, but plain objects all the same.
const OPAQUE: &[&str] = &[
    "types.SimpleNamespace",
    "types.MappingProxyType",
    "io.BytesIO",
    "_io.BytesIO",
    "io.StringIO",
    "_io.StringIO",
    "joblib.numpy_pickle.NumpyArrayWrapper",
    "joblib.numpy_pickle.NDArrayWrapper",
    "weakref.WeakKeyDictionary",
    "weakref.WeakValueDictionary",
];

/// A name that says what it does, whatever module it is in.
const TELLING: &[&str] = &[
    "system",
    "popen",
    "Popen",
    "exec",
    "eval",
    "execfile",
    "execv",
    "execve",
    "execl",
    "spawn",
    "spawnv",
    "check_output",
    "check_call",
    "__import__",
    "import_module",
    "run_path",
    "run_module",
    "runcode",
    "runsource",
    "runstring",
    "run_string",
    "getoutput",
    "getstatusoutput",
    "read_pickle",
    "load_pickle",
    "urlopen",
    "urlretrieve",
    "startfile",
    "load_library",
    "LoadLibrary",
    "CodeType",
    "FunctionType",
    "attrgetter",
    "methodcaller",
    "load_module",
    "exec_module",
    "run_code",
    "run_cmd",
    "py_function",
    "py_func",
    "evaluate_guards_expression",
    "run_command",
    "shell",
];

/// Modules that stay dangerous when they are reached through an attribute of a harmless one (`torch._utils.os.system`).
const REACHED: &[&str] = &[
    "os",
    "sys",
    "subprocess",
    "posix",
    "nt",
    "builtins",
    "__builtin__",
    "shutil",
    "ctypes",
    "importlib",
    "pty",
    "socket",
    "runpy",
    "pickle",
    "marshal",
];

pub(super) fn judge(name: &str) -> Judgement {
    if ALLOWED.contains(&name) {
        return Judgement::Inert;
    }
    if OPAQUE.contains(&name) {
        return Judgement::Opaque;
    }
    let (module, last) = name.rsplit_once('.').unwrap_or(("", name));
    if matches!(module, "builtins" | "__builtin__") {
        return match last {
            "getattr" => Judgement::Depends,
            _ if BUILTINS.contains(&last) => Judgement::Inert,
            _ if ["Error", "Exception", "Warning"]
                .iter()
                .any(|end| last.ends_with(end)) =>
            {
                Judgement::Opaque
            }
            _ => Judgement::Unsafe,
        };
    }
    if name == "functools.partial" {
        return Judgement::Depends;
    }
    let mut prefix = name;
    loop {
        if DENIED_MODULES.contains(&prefix) {
            return Judgement::Unsafe;
        }
        match prefix.rsplit_once('.') {
            Some((shorter, _)) => prefix = shorter,
            None => break,
        }
    }
    // Paths are values; what they do (`Path.write_text`, `Path.unlink`) is not.
    let acts = name.starts_with("pathlib.");
    let reaches = name.split('.').skip(1).any(|part| REACHED.contains(&part));
    let hidden = name
        .split('.')
        .skip(1)
        .any(|part| part.starts_with("__") && part.ends_with("__"));
    if acts
        || reaches
        || hidden
        || TELLING.contains(&last)
        || name.contains(['\0', '\n', ' ', '/', '\\', '('])
    {
        return Judgement::Unsafe;
    }
    if is_torch_word(name)
        || module.starts_with("numpy")
            && last.chars().next().is_some_and(char::is_lowercase)
            && module == "numpy"
    {
        return Judgement::Inert;
    }
    Judgement::Opaque
}

/// `torch.float32`, `torch.FloatStorage`, `torch.per_tensor_affine`, `torch.contiguous_format`: words, not objects.
fn is_torch_word(name: &str) -> bool {
    let Some((module, last)) = name.rsplit_once('.') else {
        return false;
    };
    let storage =
        last.ends_with("Storage") && matches!(module, "torch" | "torch.cuda" | "torch.storage");
    let word = module == "torch"
        && (super::layout::torch_dtype(last).is_some()
            || last.ends_with("_affine")
            || last.ends_with("_format")
            || last.ends_with("_qparams")
            || last.ends_with("_symmetric"));
    storage || word
}

/// Parts of distributed tensors and checkpoints, which are understood where they matter.
const QUIET: &[&str] = &[
    "torch.distributed.tensor.",
    "torch.distributed._tensor.",
    "torch.distributed._shard.",
    "torch.distributed.device_mesh.",
    "torch.distributed._mesh_layout.",
    "torch.distributed.remote_device.",
    "torch.distributed.checkpoint.metadata.",
    "torch.distributed.checkpoint.filesystem.",
];

/// How many different findings of one pickle are told.
const TOLD: usize = 100;

/// Tells about every name and every call of a pickle, also of those whose result was thrown away.
pub(super) fn inspect(
    graph: &Graph,
    limits: &Limits,
    contents: &mut Contents,
    script: bool,
    depth: usize,
) {
    let judgements: Vec<Judgement> = graph
        .names()
        .iter()
        .map(|name| {
            if script && name.starts_with("__torch__.") {
                Judgement::Inert
            } else {
                judge(name)
            }
        })
        .collect();
    let mut told = 0;
    for (name, judgement) in graph.names().iter().zip(&judgements) {
        // A name is enough: `BUILD` can smuggle a callable in, and importing a module already executes it.
        if *judgement == Judgement::Unsafe && told < TOLD {
            told += 1;
            contents.find(
                FindingKind::UnsafeGlobal,
                format!("asks to call {}; not executed", printable(name)),
            );
        }
    }
    let mut opaque: HashSet<u32> = HashSet::new();
    for (id, node) in graph.nodes() {
        let Node::Call { function, .. } = node else {
            continue;
        };
        match graph.node(function) {
            Node::Global(name) => match judgements[name as usize] {
                Judgement::Depends if !harmless_use(graph, id) => {
                    contents.find(
                        FindingKind::UnsafeGlobal,
                        format!(
                            "asks to call {}; not executed",
                            printable(&graph.names()[name as usize])
                        ),
                    );
                }
                Judgement::Opaque => {
                    opaque.insert(name);
                }
                Judgement::Inert | Judgement::Unsafe | Judgement::Depends => {
                    if graph.names()[name as usize] == "torch.storage._load_from_bytes" {
                        inspect_nested(graph, id, limits, contents, depth);
                    }
                    if let Some(class) = reconstructed(graph, id, &judgements) {
                        opaque.insert(class);
                    }
                }
            },
            // Old files name the classes of modules by a persistent id: ("module", class, file, source).
            Node::Persistent(pid) => {
                if let Some(Node::Global(name)) = graph
                    .sequence(pid)
                    .and_then(|parts| parts.get(1).map(|class| graph.node(*class)))
                    && judgements[name as usize] == Judgement::Opaque
                {
                    opaque.insert(name);
                }
            }
            Node::Call {
                function: inner, ..
            } if graph
                .global_name(inner)
                .is_some_and(|name| name.ends_with(".getattr"))
                && harmless_use(graph, function) => {}
            _ => contents.find(
                FindingKind::UnsafeGlobal,
                "asks to call something it computes; not executed",
            ),
        }
    }
    let quiet = |name: &u32| {
        QUIET
            .iter()
            .any(|prefix| graph.names()[*name as usize].starts_with(prefix))
    };
    let mut opaque: Vec<u32> = opaque.into_iter().filter(|name| !quiet(name)).collect();
    opaque.sort_unstable();
    for name in opaque.into_iter().take(TOLD) {
        contents.find(
            FindingKind::OpaqueObject,
            format!(
                "holds an object of {}",
                printable(&graph.names()[name as usize])
            ),
        );
    }
}

/// `copyreg._reconstructor(cls, ...)` makes an object of `cls`.
fn reconstructed(graph: &Graph, call: Id, judgements: &[Judgement]) -> Option<u32> {
    let (function, arguments) = graph.call(call)?;
    if !graph.global_name(function)?.ends_with("._reconstructor") {
        return None;
    }
    match graph.node(*arguments.first()?) {
        Node::Global(name) if judgements[name as usize] == Judgement::Opaque => Some(name),
        _ => None,
    }
}

/// The name of a class, also of one that an old file gives by a persistent id.
fn class_name(graph: &Graph, id: Id) -> Option<&str> {
    match graph.node(id) {
        Node::Persistent(pid) => graph.global_name(*graph.sequence(pid)?.get(1)?),
        _ => graph.global_name(id),
    }
}

/// `getattr(EnumClass, "NAME")` and `partial(class, ...)`: how pickles write enum members, nested classes and defaults.
fn harmless_use(graph: &Graph, call: Id) -> bool {
    let Some((_, arguments)) = graph.call(call) else {
        return false;
    };
    let Some(name) = arguments
        .first()
        .and_then(|first| class_name(graph, *first))
    else {
        return false;
    };
    let attribute = arguments.get(1).and_then(|second| graph.text(*second));
    let hidden = attribute.is_some_and(|text| {
        text.contains("__") || REACHED.contains(&&*text) || TELLING.contains(&&*text)
    });
    matches!(judge(name), Judgement::Inert | Judgement::Opaque) && !hidden
}

/// `_load_from_bytes` is `torch.load` of the bytes it is given: what is in them counts as in the file.
fn inspect_nested(graph: &Graph, call: Id, limits: &Limits, contents: &mut Contents, depth: usize) {
    let Some(bytes) = graph
        .call(call)
        .and_then(|(_, arguments)| super::layout::bytes_of(graph, *arguments.first()?).ok())
    else {
        return;
    };
    let Ok(bytes) = bytes.fetch() else { return };
    if depth >= 4 {
        contents.find(
            FindingKind::Odd,
            "holds pickles inside pickles, deeper than 4",
        );
        return;
    }
    let mut at = 0;
    for _ in 0..5 {
        if at >= bytes.len() {
            break;
        }
        let pickle = unpickle(&bytes, at, limits);
        inspect(&pickle.graph, limits, contents, false, depth + 1);
        match pickle.result {
            Ok(end) => at = end.at,
            Err(_) => break,
        }
    }
}

/// A name as it can be printed: short, and without control characters.
fn printable(name: &str) -> String {
    let mut out: String = name
        .chars()
        .take(200)
        .flat_map(char::escape_debug)
        .collect();
    if name.chars().nth(200).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(pickle: &[u8]) -> Vec<(FindingKind, String)> {
        let pickle = unpickle(&pickle.to_vec().into(), 0, &Limits::default());
        let mut contents = Contents::new("pickle");
        inspect(&pickle.graph, &Limits::default(), &mut contents, false, 0);
        contents
            .findings
            .into_iter()
            .map(|finding| (finding.kind, finding.text))
            .collect()
    }

    #[test]
    fn what_executes_is_unsafe_wherever_it_hides() {
        for name in [
            "os.system",
            "posix.system",
            "nt.system",
            "builtins.eval",
            "__builtin__.exec",
            "builtins.__import__",
            "builtins.open",
            "subprocess.Popen",
            "torch.hub.load",
            "torch.load",
            "torch.jit.load",
            "torch._utils.os.system",
            "torch.serialization.os.system",
            "collections.OrderedDict.__init__.__globals__",
            "numpy.testing._private.utils.runstring",
            "operator.attrgetter",
            "types.CodeType",
            "some.unknown.module.system",
            "pandas.read_pickle",
            "pathlib.Path.unlink",
            "runpy._run_code",
            "importlib.import_module",
        ] {
            assert_eq!(judge(name), Judgement::Unsafe, "{name}");
        }
    }

    #[test]
    fn what_checkpoints_really_hold_is_silent_or_opaque() {
        for name in [
            "collections.OrderedDict",
            "torch._utils._rebuild_tensor_v2",
            "torch.FloatStorage",
            "torch.bfloat16",
            "torch.per_channel_affine",
            "builtins.set",
            "_codecs.encode",
            "torch.cuda.HalfStorage",
        ] {
            assert_eq!(judge(name), Judgement::Inert, "{name}");
        }
        for name in [
            "torch.nn.modules.linear.Linear",
            "argparse.Namespace",
            "deepspeed.utils.tensor_fragment.fragment_address",
            "__main__.Config",
            "omegaconf.dictconfig.DictConfig",
        ] {
            assert_eq!(judge(name), Judgement::Opaque, "{name}");
        }
    }

    #[test]
    fn an_exploit_whose_result_is_popped_is_found() {
        assert_eq!(
            findings(b"cos\nsystem\n(U\x01xtR0N."),
            [(
                FindingKind::UnsafeGlobal,
                "asks to call os.system; not executed".into()
            )]
        );
    }

    #[test]
    fn getattr_of_an_enum_is_harmless_and_of_a_module_is_not() {
        assert_eq!(findings(b"cbuiltins\ngetattr\n(cm\nColor\nU\x03REDtR."), []);
        assert!(!findings(b"cbuiltins\ngetattr\n(cos\npath\nU\x06systemtR.").is_empty());
        assert!(
            findings(b"cbuiltins\ngetattr\n(cm\nColor\nU\x0b__globals__tR.")
                .iter()
                .any(|(kind, _)| kind.is_attack())
        );
    }

    #[test]
    fn calling_what_was_computed_is_an_attack() {
        assert!(
            findings(b"cm\nf\n)R)R.")
                .iter()
                .any(|(kind, _)| kind.is_attack())
        );
    }

    #[test]
    fn a_pickle_inside_a_pickle_is_looked_into() {
        assert!(
            findings(b"ctorch.storage\n_load_from_bytes\n(C\x10cos\nsystem\n)R0N.tR.")
                .iter()
                .any(|(_, text)| text.contains("os.system"))
        );
    }
}
