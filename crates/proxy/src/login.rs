//! How a client proves who it is, without sockets.
//!
//! ```text
//! demand -> Nothing:    the client is let in
//!        -> Password:   its secret is found, in the users file or on a server
//!                       -> challenge -> answer
//!        -> SystemUser: who is at the other end of its socket is found out
//! ```
//!
//! A login that fails because of a wrong password, an unknown user or one without a password takes
//! the same messages and the same work: only the log and the metrics tell which it was.

use std::sync::Arc;

use tidegate_wire::authentication::{self, SCRAM_SHA_256, SCRAM_SHA_256_PLUS};
use tidegate_wire::{Malformed, error_response::SqlState};

use crate::config::ClientAuthentication;
use crate::hba::{self, Hba};
use crate::scram::{self, ChannelBinding, ScramError, ScramServer, ScramVerifier};
use crate::users::{self, Mock, Secret, User};

/// How a client proves that it knows the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PasswordMethod {
    /// By an MD5 hash, or by SCRAM if that is what the user's secret is for.
    Md5,
    /// By SCRAM-SHA-256.
    ScramSha256,
}

/// What a client has to prove beyond what its certificate has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    Nothing,
    /// That it knows the password.
    Password(PasswordMethod),
    /// That it runs as a user of the operating system which this map lets be the user it asks for;
    /// without a map the names are the same.
    SystemUser {
        map: Option<Arc<str>>,
    },
}

/// An authentication exchange that waits for the client's next message. The user is absent if it is
/// not known.
pub(crate) enum Exchange {
    Md5 {
        salt: [u8; 4],
        user: Option<Arc<User>>,
    },
    /// The client chooses a mechanism. The end point is that of the proxy's certificate, which it
    /// may bind the login to.
    ScramFirst {
        end_point: Option<Arc<[u8]>>,
        verifier: Box<ScramVerifier>,
        user: Option<Arc<User>>,
    },
    ScramFinal {
        server: Box<ScramServer>,
        user: Option<Arc<User>>,
    },
}

/// How an exchange goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// With the client's next message.
    Continue,
    /// The client is who it says.
    Proved,
}

/// Declares why logins fail, each with its label in `/metrics`.
macro_rules! login_failures {
    ($($(#[doc = $doc:literal])+ $name:ident: $label:literal,)*) => {
        /// Why a login has failed, for whom runs the proxy. The client is not told all of it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum LoginFailure {
            $($(#[doc = $doc])+ $name,)*
        }

        impl LoginFailure {
            /// All of them, in the order of their numbers.
            pub(crate) const ALL: &[LoginFailure] = &[$(LoginFailure::$name,)*];

            /// Returns the label in `/metrics`.
            pub(crate) fn label(self) -> &'static str {
                match self {
                    $(LoginFailure::$name => $label,)*
                }
            }

            /// Returns the reason in words.
            pub(crate) fn sentence(self) -> &'static str {
                match self {
                    $(LoginFailure::$name => concat!($($doc),+).trim_start(),)*
                }
            }
        }
    };
}

login_failures! {
    /// The password is wrong.
    WrongPassword: "wrong_password",
    /// Neither the users file nor `auth_query` knows the user.
    UnknownUser: "unknown_user",
    /// The user has no secret that the method can use.
    NoPassword: "no_password",
    /// The certificate is missing, or that of somebody else.
    Certificate: "certificate",
    /// The user of the operating system may not be the user.
    SystemUser: "system_user",
    /// No line of the HBA file fits, or the one that fits rejects.
    Hba: "hba",
    /// The connection is not encrypted and has to be.
    Encryption: "encryption",
    /// The database is not configured.
    Database: "database",
    /// The user may not use the console, or too many do.
    Console: "console",
    /// The database has been disabled, or the proxy waits for its clients to leave.
    Disabled: "disabled",
    /// What the client has sent is no login that the proxy takes.
    Protocol: "protocol",
    /// The user could not be looked up.
    LookUp: "look_up",
    /// The server has refused the proxy, or cannot be reached.
    Server: "server",
    /// It has taken too long.
    Timeout: "timeout",
    /// Too many connections were not logged in, and this one was the oldest.
    Crowded: "crowded",
}

/// Why a client is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    #[error("password authentication failed for user \"{user}\"")]
    Password { user: String, failure: LoginFailure },
    #[error("{0}")]
    Scram(ScramError),
    #[error("SASL mechanism {0:?} is not offered; use SCRAM-SHA-256")]
    Mechanism(String),
    #[error("certificate authentication failed for user \"{0}\"")]
    Certificate(String),
    #[error("connection requires a valid client certificate")]
    CertificateMissing,
    #[error("Peer authentication failed for user \"{0}\"")]
    SystemUser(String),
    #[error("no pg_hba.conf entry for {0}")]
    NoEntry(String),
    #[error("pg_hba.conf rejects {0}")]
    Rejected(String),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("no randomness for a challenge: {0}")]
    Randomness(#[from] getrandom::Error),
}

impl LoginError {
    pub(crate) fn sql_state(&self) -> SqlState<'static> {
        match self {
            LoginError::Password { .. } => SqlState::INVALID_PASSWORD,
            LoginError::Scram(_) | LoginError::Mechanism(_) | LoginError::Malformed(_) => {
                SqlState::PROTOCOL_VIOLATION
            }
            LoginError::Certificate(_)
            | LoginError::CertificateMissing
            | LoginError::SystemUser(_)
            | LoginError::NoEntry(_)
            | LoginError::Rejected(_)
            | LoginError::Randomness(_) => SqlState::INVALID_AUTHORIZATION,
        }
    }

    pub(crate) fn failure(&self) -> LoginFailure {
        match self {
            LoginError::Password { failure, .. } => *failure,
            LoginError::Certificate(_) | LoginError::CertificateMissing => {
                LoginFailure::Certificate
            }
            LoginError::SystemUser(_) => LoginFailure::SystemUser,
            LoginError::NoEntry(_) | LoginError::Rejected(_) => LoginFailure::Hba,
            LoginError::Scram(_)
            | LoginError::Mechanism(_)
            | LoginError::Malformed(_)
            | LoginError::Randomness(_) => LoginFailure::Protocol,
        }
    }
}

/// What TLS says about a client.
#[derive(Debug, Default)]
pub(crate) struct ClientProof {
    /// It has shown a certificate that is right.
    pub(crate) has_certificate: bool,
    /// The common name of that certificate.
    pub(crate) common_name: Option<String>,
    /// Whether that has to be the user.
    pub(crate) has_to_name_user: bool,
}

/// Returns what a client has to prove.
///
/// # Errors
/// It is not let in, whatever it proves.
pub(crate) fn demand(
    authentication: ClientAuthentication,
    hba: Option<&Hba>,
    request: &hba::Request<'_>,
    tls: &ClientProof,
) -> Result<Demand, LoginError> {
    let names_user = tls.common_name.as_deref() == Some(request.user);
    if tls.has_to_name_user && !names_user {
        return Err(LoginError::Certificate(request.user.to_owned()));
    }
    Ok(match authentication {
        ClientAuthentication::Trust => Demand::Nothing,
        ClientAuthentication::Certificate if names_user => Demand::Nothing,
        ClientAuthentication::Certificate => {
            return Err(LoginError::Certificate(request.user.to_owned()));
        }
        ClientAuthentication::Md5 => Demand::Password(PasswordMethod::Md5),
        ClientAuthentication::ScramSha256 => Demand::Password(PasswordMethod::ScramSha256),
        ClientAuthentication::Hba => return demand_by_rule(hba, request, tls),
    })
}

/// Returns what the first line of the HBA file that fits demands.
fn demand_by_rule(
    hba: Option<&Hba>,
    request: &hba::Request<'_>,
    tls: &ClientProof,
) -> Result<Demand, LoginError> {
    debug_assert!(hba.is_some(), "auth = \"hba\" is refused without a file");
    let rules = hba.map(Hba::rules);
    let Some((rules, rule)) = rules.as_ref().and_then(|rules| Some((rules, rules.first(request)?)))
    else {
        return Err(LoginError::NoEntry(request.to_string()));
    };
    if rule.method == hba::Method::Reject {
        return Err(LoginError::Rejected(request.to_string()));
    }
    if rule.certificate != hba::ClientCertificate::NotNeeded && !tls.has_certificate {
        return Err(LoginError::CertificateMissing);
    }
    if rule.certificate == hba::ClientCertificate::OfUser {
        let name = tls.common_name.as_deref();
        let is_user =
            name.is_some_and(|name| rules.may_be(rule.map.as_deref(), name, request.user));
        if !is_user {
            return Err(LoginError::Certificate(request.user.to_owned()));
        }
    }
    Ok(match rule.method {
        // A rejection was returned above.
        hba::Method::Trust | hba::Method::Certificate | hba::Method::Reject => Demand::Nothing,
        hba::Method::Password(method) => Demand::Password(method),
        hba::Method::Peer => Demand::SystemUser { map: rule.map.clone() },
    })
}

/// Begins the exchange with a user, who is absent if not known, and appends its challenge.
/// `end_point` is as in [`crate::tls::Encryption::own_end_point`].
pub(crate) fn challenge(
    method: PasswordMethod,
    (name, user): (&str, Option<Arc<User>>),
    mock: &Mock,
    end_point: Option<Arc<[u8]>>,
    out: &mut Vec<u8>,
) -> Result<Exchange, LoginError> {
    let is_by_md5 = match user.as_ref().and_then(|user| user.secret()) {
        Some(Secret::Plain(_) | Secret::Md5(_)) => true,
        Some(Secret::Scram(_)) => false,
        None => mock.proves_by_md5(name.as_bytes()),
    };
    if method == PasswordMethod::Md5 && is_by_md5 {
        let mut salt = [0; 4];
        getrandom::fill(&mut salt)?;
        authentication::encode_md5_password(out, salt);
        return Ok(Exchange::Md5 { salt, user });
    }
    match end_point {
        Some(_) => authentication::encode_sasl(out, &[SCRAM_SHA_256_PLUS, SCRAM_SHA_256]),
        None => authentication::encode_sasl(out, &[SCRAM_SHA_256]),
    }
    let verifier = user.as_ref().and_then(|user| user.scram_verifier()).cloned();
    let verifier = verifier.unwrap_or_else(|| mock.scram_verifier(name.as_bytes()));
    Ok(Exchange::ScramFirst { end_point, verifier: Box::new(verifier), user })
}

/// Takes the client's answer and appends what follows it.
pub(crate) fn answer(
    exchange: &mut Exchange,
    name: &str,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<Step, LoginError> {
    match exchange {
        Exchange::Md5 { salt, user } => {
            let response = authentication::password(payload)?;
            // Whoever is unknown is compared with a hash as well.
            let mock = Secret::Md5(format!("md5{:032}", 0));
            let secret = user.as_ref().and_then(|user| user.secret());
            let is_right =
                users::md5_matches(secret.unwrap_or(&mock), name.as_bytes(), *salt, response);
            if is_right && secret.is_some() {
                Ok(Step::Proved)
            } else {
                Err(wrong_password(name, user.as_deref()))
            }
        }
        Exchange::ScramFirst { end_point, verifier, user } => {
            let (mechanism, first) = authentication::sasl_initial_response(payload)?;
            let binding = match (str::from_utf8(mechanism), end_point.take()) {
                (Ok(SCRAM_SHA_256), None) => ChannelBinding::NotOffered,
                (Ok(SCRAM_SHA_256), Some(_)) => ChannelBinding::Declined,
                (Ok(SCRAM_SHA_256_PLUS), Some(end_point)) => ChannelBinding::EndPoint(end_point),
                _ => {
                    let mechanism = String::from_utf8_lossy(mechanism).into_owned();
                    return Err(LoginError::Mechanism(mechanism));
                }
            };
            let verifier = ScramVerifier::clone(verifier);
            let (server, challenge) =
                ScramServer::start(verifier, &binding, first, &scram::nonce()?)
                    .map_err(LoginError::Scram)?;
            authentication::encode_sasl_continue(out, &challenge);
            let (server, user) = (Box::new(server), user.take());
            *exchange = Exchange::ScramFinal { server, user };
            Ok(Step::Continue)
        }
        Exchange::ScramFinal { server, user } => {
            let proved = server.finish(payload).map_err(|error| match error {
                ScramError::WrongProof => wrong_password(name, user.as_deref()),
                other => LoginError::Scram(other),
            })?;
            if let Some(user) = user {
                user.learn(proved.client_key);
            }
            authentication::encode_sasl_final(out, &proved.outcome);
            Ok(Step::Proved)
        }
    }
}

fn wrong_password(name: &str, user: Option<&User>) -> LoginError {
    let failure = match user.map(User::secret) {
        None => LoginFailure::UnknownUser,
        Some(None) => LoginFailure::NoPassword,
        Some(Some(_)) => LoginFailure::WrongPassword,
    };
    LoginError::Password { user: name.to_owned(), failure }
}
