//! Access control: a request must show the viewer's token, as the `token` of a URL or in a header. The page keeps it where
//! the browser gives it to this port alone; a cookie would go to all ports of the host, and so to servers of other users. The
//! cookie that the URL sets opens the files of the page and no data.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, Uri, header};
use data_encoding::HEXLOWER;
use subtle::ConstantTimeEq;
use tidecast_secret::Kind;

use crate::error::Error;

/// The header in which the page shows the token: proxies have uses of their own for `Authorization`.
const HEADER: &str = "tidecast-token";
/// Fewer characters could be guessed.
const LEAST: usize = 16;
const MOST: usize = 256;

/// The token that every request has to show. It is not contained in any message.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A random one that cannot be guessed.
    #[must_use]
    pub fn random() -> Self {
        Self(HEXLOWER.encode(&rand::random::<[u8; 24]>()))
    }

    /// The token of a viewer: of this file, which only its user may read, or of `TIDECAST_VIEW_TOKEN`.
    ///
    /// # Errors
    /// It cannot be read, or is not valid.
    pub fn given(file: Option<&Path>) -> Result<Option<Self>, Error> {
        Self::of(Kind { name: "token", variable: "TIDECAST_VIEW_TOKEN" }, file)
    }

    /// As [`Token::given`], the one to show other viewers: of a file, or of `TIDECAST_REMOTE_TOKEN`.
    ///
    /// # Errors
    /// As there.
    pub fn given_for_others(file: Option<&Path>) -> Result<Option<Self>, Error> {
        Self::of(Kind { name: "token", variable: "TIDECAST_REMOTE_TOKEN" }, file)
    }

    fn of(kind: Kind, file: Option<&Path>) -> Result<Option<Self>, Error> {
        let text = match file {
            Some(file) => Some(kind.private_file(file)?),
            None => kind.given(None)?,
        };
        text.map(|text| text.trim().parse()).transpose()
    }

    /// For the URL that opens the page.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// In constant time for texts of its length.
    fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
        if (LEAST..=MOST).contains(&text.len()) && text.chars().all(plain) {
            return Ok(Self(text.into()));
        }
        Err(Error::Token(LEAST, MOST))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// How a request has shown the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenSource {
    /// Not at all, or another.
    Not,
    /// In the URL: the cookie is to be set.
    Url,
    /// In a header.
    Else,
    /// Not, but by the cookie that the page was opened.
    Page,
}

/// Whether a request shows the token. `cookie`: its name, and the value that opens the page.
pub(crate) fn shown(token: &Token, cookie: (&str, &Token), uri: &Uri, headers: &HeaderMap) -> TokenSource {
    let query = uri.query().unwrap_or_default().split('&').filter_map(|part| part.strip_prefix("token="));
    if query.into_iter().any(|shown| token.is(shown)) {
        return TokenSource::Url;
    }
    let texts = |name| headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let own = HeaderName::from_static(HEADER);
    let bearer = texts(header::AUTHORIZATION).filter_map(|text| {
        let (scheme, shown) = text.split_once(' ')?;
        let known = scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token");
        known.then(|| shown.trim())
    });
    let cookies = texts(header::COOKIE).flat_map(|text| text.split(';')).filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == cookie.0).then_some(value)
    });
    if bearer.chain(texts(own)).any(|shown| token.is(shown)) {
        return TokenSource::Else;
    }
    if cookies.into_iter().any(|shown| cookie.1.is(shown)) { TokenSource::Page } else { TokenSource::Not }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_by_url_or_header_and_a_cookie_opens_the_page() {
        let token: Token = "0123456789abcdef".parse().unwrap();
        let page: Token = "fedcba9876543210".parse().unwrap();
        let ask = |uri: &str, name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            shown(&token, ("view-1", &page), &uri.parse().unwrap(), &headers)
        };
        assert_eq!(ask("/?token=0123456789abcdef", "x", ""), TokenSource::Url);
        assert_eq!(ask("/a?b=1&token=0123456789abcdef&c", "x", ""), TokenSource::Url);
        assert_eq!(ask("/", "authorization", "Bearer 0123456789abcdef"), TokenSource::Else);
        assert_eq!(ask("/", "authorization", "token 0123456789abcdef"), TokenSource::Else);
        assert_eq!(ask("/", HEADER, "0123456789abcdef"), TokenSource::Else);
        assert_eq!(ask("/", "cookie", "a=b; view-1=fedcba9876543210"), TokenSource::Page);
        for (uri, name, value) in [
            ("/", "x", ""),
            ("/?token=", "x", ""),
            ("/?token=0123456789abcdeF", "x", ""),
            ("/?token=0123456789abcdef0", "x", ""),
            ("/?nottoken=0123456789abcdef", "x", ""),
            ("/token=0123456789abcdef", "x", ""),
            ("/", "authorization", "Basic 0123456789abcdef"),
            ("/", "authorization", "0123456789abcdef"),
            ("/", "cookie", "view-1=0123456789abcdef"),
            ("/", "cookie", "view-2=fedcba9876543210"),
            ("/", HEADER, "fedcba9876543210"),
            ("/", "referer", "http://x/?token=0123456789abcdef"),
        ] {
            assert_eq!(ask(uri, name, value), TokenSource::Not, "{uri} {name}: {value}");
        }
    }

    #[test]
    fn tokens_are_long_and_fit_into_urls_and_stay_out_of_messages() {
        assert_ne!(Token::random().text(), Token::random().text());
        assert!(Token::random().text().parse::<Token>().is_ok());
        for text in ["", "short", "with a blank in it", "semi;colon;semi;colon", &"a".repeat(MOST + 1)] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", "0123456789abcdef".parse::<Token>().unwrap()), "Token(..)");
    }
}
