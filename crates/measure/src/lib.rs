//! Views to numbers: mergeable states, the only hot loops. No opinions here.
