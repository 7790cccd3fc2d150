//! From a socket to the router: connections with a bound on how many and how slow, and an end that waits for answers, not for idlers.

use crate::{app::App, router};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::Semaphore,
};

/// Connections at a time. A browser has six; a load test a hundred.
const CONNECTIONS: usize = 1024;
/// The head of a request that takes longer is no request.
const HEAD: Duration = Duration::from_secs(15);
/// What one connection may have read and not yet used.
const BUFFER: usize = 1 << 20;
/// How long answers may take after the end was asked for.
const GRACE: Duration = Duration::from_secs(2);
/// Ports tried after the one that was asked for.
const TRIED: u16 = 100;

/// Listens on a port, or the next one that is free; 0 is any.
pub fn bind(host: IpAddr, port: u16) -> io::Result<TcpListener> {
    let mut refused = None;
    for port in port..=port.saturating_add(if port == 0 { 0 } else { TRIED }) {
        let address = SocketAddr::new(host, port);
        let socket = if host.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // A server that just ended leaves its port in a state that only this gets past; a port somebody listens on stays taken.
        #[cfg(unix)]
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(1024)) {
            Ok(listener) => return Ok(listener),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
                ) =>
            {
                refused = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

/// Serves until `stop` is done; then running comparisons end, answers that are being written are finished, and everything is on disk.
pub async fn serve(listener: TcpListener, app: Arc<App>, stop: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router(app.clone()));
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER);
    tokio::pin!(stop);
    loop {
        let free = async {
            let place = places.clone().acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = free => next,
            () = &mut stop => break,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file handles, or a client that gave up: others may still come.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let connection =
            graceful.watch(builder.serve_connection(TokioIo::new(stream), service.clone()));
        tokio::spawn(async move {
            // A connection that breaks is the client's affair.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    app.stop();
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}
