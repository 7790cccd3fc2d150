//! Listings and numbers as text: tables for people, JSON for scripts.

pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod human;
pub(crate) mod json;
pub(crate) mod layout;
pub(crate) mod plain;
pub(crate) mod table;
pub(crate) mod warnings;
