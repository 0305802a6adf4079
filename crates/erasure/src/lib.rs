//! The erasure code: m pieces of parity over k pieces of data, any k of which give all the others.
//!
//! Reed-Solomon over GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1: the (k + m) x k Vandermonde matrix of the elements 0, 1, 2, ...
//! times the inverse of its upper square, so that data stands as it is. Bytes at one place of all pieces are a code word by themselves, so
//! any range of bytes is encoded and decoded alone. The matrix is a contract with the disk: vectors in the tests hold it.
//!
//! Promises: what is computed is written into buffers that were made for it and began as zeros (rule R46); nothing of a caller's is
//! changed. Refuses to know: which piece is whose, whether the pieces given are sound: whoever decodes verifies what comes out (rule R45).

use reed_solomon_erasure::galois_8::ReedSolomon;

/// What cannot be coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// There is no such code.
    #[error("no code with {0} pieces of data and {1} of parity")]
    NoSuchCode(usize, usize),
    /// Not as many pieces as the code has, or of different lengths, or empty.
    #[error("pieces that do not fit the code")]
    Pieces,
    /// Fewer pieces than pieces of data.
    #[error("too few pieces: {0}")]
    TooFew(usize),
}

/// A code with k pieces of data and m of parity.
pub struct Code {
    inner: ReedSolomon,
}

impl Code {
    /// k is at least 1, m is at least 1, together at most 256.
    pub fn new(k: usize, m: usize) -> Result<Code, CodeError> {
        let inner = ReedSolomon::new(k, m).map_err(|_| CodeError::NoSuchCode(k, m))?;
        Ok(Code { inner })
    }

    /// Pieces of data.
    pub fn k(&self) -> usize {
        self.inner.data_shard_count()
    }

    /// Pieces of parity.
    pub fn m(&self) -> usize {
        self.inner.parity_shard_count()
    }

    /// The pieces of parity over all pieces of data.
    pub fn encode(&self, data: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<u8>>, CodeError> {
        let bytes = data.first().map_or(0, |piece| piece.as_ref().len());
        let mut parity = vec![vec![0; bytes]; self.m()];
        self.inner.encode_sep(data, &mut parity).map_err(|_| CodeError::Pieces)?;
        Ok(parity)
    }

    /// The missing pieces among `wanted`, in their order, from exactly k of the pieces, by place. All must be missing.
    pub fn decode(&self, mut pieces: Vec<Option<Vec<u8>>>, wanted: &[usize]) -> Result<Vec<Vec<u8>>, CodeError> {
        let given = pieces.iter().flatten().count();
        if given < self.k() {
            return Err(CodeError::TooFew(given));
        }
        let missing = |place: &usize| pieces.get(*place).is_some_and(Option::is_none);
        if given > self.k() || pieces.len() != self.k() + self.m() || !wanted.iter().all(missing) {
            return Err(CodeError::Pieces);
        }
        self.inner.reconstruct(&mut pieces).map_err(|_| CodeError::Pieces)?;
        wanted.iter().map(|place| pieces.get_mut(*place).and_then(Option::take).ok_or(CodeError::Pieces)).collect()
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {}+{}", self.k(), self.m())
    }
}
