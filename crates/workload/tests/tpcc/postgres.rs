//! On PostgreSQL.
