//! metainfo
