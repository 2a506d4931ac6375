//! The Burrows-Wheeler transform and its second stage.
