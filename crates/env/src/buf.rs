//! Memory aligned for O_DIRECT, pooled because the first touch of fresh memory is dear.
