//! `twinscope [serve] [REFERENCE [CANDIDATE]]` — the web app on this machine.

use crate::{
    failure::Failure,
    open::Opening,
    render::{human, json},
};
use anyhow::Context;
use std::{
    io::Write,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};
use twinscope_compare::Settings;
use twinscope_server::{
    ANY_ADDRESS, App, Config, Roots, bind, open_paths, openapi, random_id, serve,
};

/// Look at sources in the browser
///
/// Starts the web app on this machine, prints its address on stdout and opens the browser. With two sources they are compared at once, with
/// one it is explored. Nothing leaves this machine; sessions are kept and found again after a restart.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  twinscope                                        open the app, drop files on it
  twinscope hf_run.pt our_run.pt                   compare two sources in the browser
  twinscope serve --port 0 --no-open               any free port, for a script
  twinscope serve --root /data --root ~/runs       more folders to open paths from
  twinscope serve --host 0.0.0.0                   for other machines: the address printed has a token")]
pub(crate) struct Serve {
    /// The source you trust
    reference: Option<PathBuf>,
    /// The source in question
    candidate: Option<PathBuf>,
    #[command(flatten)]
    listening: Listening,
    /// Print the description of the API and end
    #[arg(long)]
    openapi: bool,
}

/// Where the web app is and what it may do: of `serve` and of `demo`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The web app")]
pub(crate) struct Listening {
    /// The port, or the next one that is free; 0 is any
    #[arg(long, value_name = "N", default_value_t = 5000)]
    port: u16,
    /// The address to listen on; any other than loopback asks for a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// Do not open the browser
    #[arg(long)]
    no_open: bool,
    /// A folder below which the page may open paths, besides the current one. Repeat for more
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// Where sessions and uploads are kept [default: the user's state folder]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Ask for a token: the one given, or a new one, which is in the address that is printed
    #[arg(long, value_name = "TOKEN", num_args = 0..=1, default_missing_value = "")]
    token: Option<String>,
    /// The most that one upload may have, like 500M or 80G [default: what the disk has]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size)]
    max_upload: Option<u64>,
    /// A host name that this server may be called by, besides localhost. Repeat for more
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Comparisons at the same time; the others wait
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    comparisons: u16,
}

impl Serve {
    pub(crate) fn source(&self) -> &Path {
        self.reference.as_deref().unwrap_or(Path::new(""))
    }

    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        if self.openapi {
            writeln!(out, "{}", openapi().to_pretty_json()?)?;
            return Ok(0);
        }
        self.listening.serve(
            self.reference.as_deref(),
            self.candidate.as_deref(),
            opening,
            out,
        )
    }
}

impl Listening {
    /// Serves until it is stopped; what is named is opened first.
    pub(super) fn serve(
        &self,
        reference: Option<&Path>,
        candidate: Option<&Path>,
        opening: &Opening,
        out: &mut dyn Write,
    ) -> anyhow::Result<u8> {
        let host = self.address()?;
        let token = self.secret(host)?;
        let named = [reference, candidate]
            .into_iter()
            .flatten()
            .map(Path::to_owned);
        let app = App::new(self.config(named, opening, host, token.clone())?)?;
        if let Some(reference) = reference {
            app.set_first(open(&app, reference, candidate)?);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the server")?;
        runtime.block_on(async {
            let listener = bind(host, self.port).map_err(|error| {
                Failure::new(format!(
                    "cannot listen on {host}, port {}: {error}",
                    self.port
                ))
                .hint("choose another port with --port N, or any with --port 0")
            })?;
            let stopped = stopped();
            let port = listener.local_addr()?.port();
            let url = address(host, port, token.as_deref());
            if opening.json {
                json::document(out, &serde_json::json!({"url": url}))?;
            } else {
                writeln!(out, "{url}")?;
            }
            out.flush()?;
            if !self.no_open {
                open_browser(&url);
            }
            serve(listener, app, stopped).await;
            anyhow::Ok(())
        })?;
        // What is still being measured ends with the process.
        runtime.shutdown_background();
        Ok(0)
    }

    fn address(&self) -> anyhow::Result<IpAddr> {
        match self.host.as_str() {
            "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
            host => host.trim_matches(['[', ']']).parse().map_err(|_| {
                Failure::new(format!("--host `{host}` is not an address"))
                    .hint("an address of this machine, like 127.0.0.1, ::1 or 0.0.0.0")
                    .into()
            }),
        }
    }

    /// Loopback needs none; everything else does.
    fn secret(&self, host: IpAddr) -> anyhow::Result<Option<String>> {
        match self.token.as_deref() {
            Some("") => Ok(Some(random_id(24)?)),
            Some(token)
                if token.len() < 8
                    || !token
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || "-_.~".contains(c)) =>
            {
                Err(
                    Failure::new("--token has letters, digits and -_.~, eight at least")
                        .hint("--token alone makes one")
                        .into(),
                )
            }
            Some(token) => Ok(Some(token.to_owned())),
            None if host.is_loopback() => Ok(None),
            None => Ok(Some(random_id(24)?)),
        }
    }

    /// Where sessions are kept.
    pub(super) fn state(&self) -> anyhow::Result<PathBuf> {
        self.state.clone().map_or_else(default_state, Ok)
    }

    fn config(
        &self,
        named: impl Iterator<Item = PathBuf>,
        opening: &Opening,
        host: IpAddr,
        token: Option<String>,
    ) -> anyhow::Result<Config> {
        let here = std::env::current_dir().context("there is no current folder")?;
        let folders: Vec<PathBuf> = std::iter::once(here)
            .chain(self.root.iter().cloned())
            .collect();
        if let Some(missing) = folders.iter().find(|folder| !folder.is_dir()) {
            return Err(
                Failure::new(format!("--root `{}` is not a folder", missing.display())).into(),
            );
        }
        let mut hosts = self.allow_host.clone();
        if host.is_unspecified() {
            hosts.push(ANY_ADDRESS.to_owned());
        } else if !host.is_loopback() {
            hosts.push(host.to_string());
        }
        Ok(Config {
            state: self.state()?,
            roots: Roots::new(folders, named)?,
            token,
            hosts,
            max_upload: self.max_upload,
            opening: opening.options(None),
            comparisons: usize::from(self.comparisons),
        })
    }
}

fn open(app: &Arc<App>, reference: &Path, candidate: Option<&Path>) -> anyhow::Result<String> {
    open_paths(app, reference, candidate, Settings::default()).map_err(|problem| {
        let failure = Failure::new(problem.detail);
        problem
            .hint
            .into_iter()
            .fold(failure, |failure, hint| failure.hint(hint.into_string()))
            .into()
    })
}

fn address(host: IpAddr, port: u16, token: Option<&str>) -> String {
    let host = match host {
        // What one types to reach oneself.
        host if host.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(host) => format!("[{host}]"),
        host => host.to_string(),
    };
    let query = token.map_or_else(String::new, |token| format!("?token={token}"));
    format!("http://{host}:{port}/{query}")
}

/// `$XDG_STATE_HOME/twinscope`, or where that is when nobody says.
fn default_state() -> anyhow::Result<PathBuf> {
    if let Some(given) = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
    {
        return Ok(given.join("twinscope"));
    }
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let home = home.ok_or_else(|| {
        Failure::new("there is no home folder to keep sessions in")
            .hint("say where with --state DIR")
    })?;
    Ok(home.join(".local/state/twinscope"))
}

/// SIGINT or SIGTERM, from the moment this is called: whoever reads the address may send one at once.
fn stopped() -> impl Future<Output = ()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
        );
        async move {
            let (Ok(mut int), Ok(mut term)) = signals else {
                return std::future::pending().await;
            };
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
            }
        }
    }
    #[cfg(not(unix))]
    async {
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Where there is no browser the address is still on the screen.
fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if cfg!(windows) {
        "explorer"
    } else {
        "xdg-open"
    };
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Ok(mut child) = started {
        std::thread::spawn(move || child.wait());
    }
}
