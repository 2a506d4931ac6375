//! Finite state entropy (tabled asymmetric numeral systems): normalised counts, encoding and decoding tables and their compact description.
