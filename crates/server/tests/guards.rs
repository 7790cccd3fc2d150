//! Who may ask, and what a request may not do.

mod common;

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use common::Server;

async fn with(
    server: &Server,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> common::Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    server.send(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let server = Server::new();
    let get = async |headers: &[(&str, &str)]| {
        with(&server, Method::GET, "/api/v1/server", headers)
            .await
            .code()
    };
    assert_eq!(get(&[("host", "localhost:5000")]).await, "200");
    assert_eq!(get(&[("host", "127.0.0.1")]).await, "200");
    for host in [
        "evil.com",
        "localhost.evil.com:5000",
        "127.0.0.1.nip.io",
        "",
    ] {
        assert_eq!(get(&[("host", host)]).await, "foreign_host", "{host}");
    }
    assert_eq!(get(&[]).await, "foreign_host");
    assert_eq!(
        get(&[
            ("host", "localhost:5000"),
            ("origin", "http://localhost:5000")
        ])
        .await,
        "200"
    );
    for origin in [
        "http://evil.com",
        "null",
        "http://localhost:5001",
        "http://localhost",
        "file://",
    ] {
        assert_eq!(
            get(&[("host", "localhost:5000"), ("origin", origin)]).await,
            "foreign_origin",
            "{origin}"
        );
    }
    for site in ["cross-site", "same-site"] {
        assert_eq!(
            get(&[("host", "localhost"), ("sec-fetch-site", site)]).await,
            "foreign_origin"
        );
    }
    assert_eq!(
        get(&[("host", "localhost"), ("sec-fetch-site", "same-origin")]).await,
        "200"
    );
    // Even the page itself answers only to its own names.
    assert_eq!(
        with(&server, Method::GET, "/", &[("host", "evil.com")])
            .await
            .status,
        StatusCode::FORBIDDEN
    );
    // A link from elsewhere may open it.
    assert_eq!(
        with(
            &server,
            Method::GET,
            "/",
            &[("host", "localhost"), ("sec-fetch-site", "cross-site")]
        )
        .await
        .status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn forms_of_other_sites_cannot_change_anything() {
    let server = Server::new();
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        let answer = with(
            &server,
            Method::POST,
            "/api/v1/open",
            &[("host", "localhost"), ("content-type", kind)],
        )
        .await;
        assert_eq!(answer.code(), "bad_content_type", "{kind}");
    }
}

#[tokio::test]
async fn every_answer_carries_the_policy_and_no_cors() {
    let server = Server::new();
    for path in [
        "/",
        "/api/v1/server",
        "/api/v1/nothing",
        "/assets/nothing.js",
    ] {
        let answer = with(
            &server,
            Method::GET,
            path,
            &[("host", "localhost"), ("origin", "http://localhost")],
        )
        .await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.contains("default-src 'self'") && !policy.contains("unsafe"),
            "{path}"
        );
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(
            answer.headers["cross-origin-resource-policy"],
            "same-origin"
        );
        assert!(
            answer
                .headers
                .keys()
                .all(|name| !name.as_str().starts_with("access-control")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_token_is_asked_for_taken_once_from_the_address_and_then_from_a_cookie() {
    let server = Server::with(|config| config.token = Some("secret-secret".to_owned()));
    let host = ("host", "localhost:5000");
    for path in ["/", "/api/v1/server", "/?token=wrong", "/?token="] {
        let answer = with(&server, Method::GET, path, &[host]).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::UNAUTHORIZED, "token_required"),
            "{path}"
        );
    }
    let bearer = with(
        &server,
        Method::GET,
        "/api/v1/server",
        &[host, ("authorization", "Bearer secret-secret")],
    )
    .await;
    assert_eq!(bearer.status, StatusCode::OK);
    let entered = with(&server, Method::GET, "/?token=secret-secret&x=1", &[host]).await;
    assert_eq!(
        (
            entered.status,
            entered.headers["location"].to_str().unwrap()
        ),
        (StatusCode::SEE_OTHER, "/?x=1")
    );
    let cookie = entered.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
    let pair = cookie.split(';').next().unwrap();
    assert_eq!(
        with(
            &server,
            Method::GET,
            "/api/v1/server",
            &[host, ("cookie", &format!("other=1; {pair}"))]
        )
        .await
        .status,
        StatusCode::OK
    );
    assert_eq!(
        with(
            &server,
            Method::GET,
            "/api/v1/server",
            &[host, ("cookie", "twinscope_5000=wrong")]
        )
        .await
        .status,
        StatusCode::UNAUTHORIZED
    );
    // A path from the address never leads elsewhere.
    let away = with(
        &server,
        Method::GET,
        "//evil.com/?token=secret-secret",
        &[host],
    )
    .await;
    assert_eq!(away.headers["location"], "/evil.com/");
}

#[tokio::test]
async fn what_does_not_exist_is_a_problem_document() {
    let server = Server::new();
    let answer = server.get("/api/v1/nothing").await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::NOT_FOUND, "no_such_endpoint")
    );
    assert_eq!(
        server
            .call(Method::PUT, "/api/v1/server", None)
            .await
            .code(),
        "method_not_allowed"
    );
    assert_eq!(
        server.get("/api/v1/sessions/none").await.code(),
        "no_such_session"
    );
    let broken = Request::post("/api/v1/open")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Body::from("{"))
        .unwrap();
    assert_eq!(server.send(broken).await.code(), "bad_json");
}

#[tokio::test]
async fn the_description_names_every_endpoint() {
    let server = Server::new();
    let described = server.get("/api/v1/openapi.json").await.json();
    assert!(described["openapi"].as_str().unwrap().starts_with("3."));
    for path in [
        "/api/v1/open",
        "/api/v1/sessions/{session}/pairs/{pair}/window",
        "/api/v1/uploads/{upload}/files/{file}",
        "/api/v1/events",
    ] {
        assert!(described["paths"].get(path).is_some(), "{path}");
    }
    for schema in ["Report", "Row", "WindowMeta", "Event", "Problem", "Edit"] {
        assert!(
            described["components"]["schemas"].get(schema).is_some(),
            "{schema}"
        );
    }
    let row = &described["components"]["schemas"]["Row"]["required"];
    assert!(
        row.as_array().unwrap().iter().any(|name| name == "max_abs"),
        "what is null is still there"
    );
}
