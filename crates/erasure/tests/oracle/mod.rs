//! The same code written from its definition: bits, a matrix of single elements, elimination. Slow, and nothing shared with the other.

/// Product in GF(2^8), bit by bit: as polynomials, modulo x^8 + x^4 + x^3 + x^2 + 1.
pub fn times(a: u8, b: u8) -> u8 {
    let (mut a, mut product) = (u16::from(a), 0_u16);
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= 0x11D;
        }
    }
    product as u8
}

/// The element that gives 1 with `a`, found by trying all.
fn inverse(a: u8) -> u8 {
    (1..=255).find(|b| times(a, *b) == 1).expect("every element but 0 has one")
}

fn power(a: u8, n: usize) -> u8 {
    (0..n).fold(1, |product, _| times(product, a))
}

type Matrix = Vec<Vec<u8>>;

/// Solves `rows` x unknown = `right` for the unknowns, each of which is a string of bytes.
fn solve(mut rows: Matrix, mut right: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let n = rows.len();
    for column in 0..n {
        let pivot = (column..n).find(|row| rows[*row][column] != 0).expect("any k rows are independent");
        rows.swap(column, pivot);
        right.swap(column, pivot);
        let by = inverse(rows[column][column]);
        for element in rows[column].iter_mut().chain(right[column].iter_mut()) {
            *element = times(*element, by);
        }
        let (of_row, of_right) = (rows[column].clone(), right[column].clone());
        for row in (0..n).filter(|row| *row != column) {
            let by = rows[row][column];
            let elements = rows[row].iter_mut().zip(&of_row).chain(right[row].iter_mut().zip(&of_right));
            elements.for_each(|(element, other)| *element ^= times(by, *other));
        }
    }
    right
}

/// Row r of the systematic matrix: that x with x times (upper square of V) = (row r of V), V[r][c] = r^c.
fn row_of(k: usize, r: usize) -> Vec<u8> {
    let transposed = (0..k).map(|c| (0..k).map(|r| power(r as u8, c)).collect()).collect();
    let row = (0..k).map(|c| vec![power(r as u8, c)]).collect();
    solve(transposed, row).into_iter().map(|element| element[0]).collect()
}

fn combine(row: &[u8], pieces: &[Vec<u8>]) -> Vec<u8> {
    let bytes = pieces[0].len();
    (0..bytes).map(|at| row.iter().zip(pieces).fold(0, |sum, (by, piece)| sum ^ times(*by, piece[at]))).collect()
}

pub fn encode(data: &[Vec<u8>], m: usize) -> Vec<Vec<u8>> {
    let k = data.len();
    (k..k + m).map(|r| combine(&row_of(k, r), data)).collect()
}

/// All pieces of data from k pieces, given with their places.
pub fn decode(k: usize, given: &[(usize, Vec<u8>)]) -> Vec<Vec<u8>> {
    let rows = given.iter().map(|(place, _)| row_of(k, *place)).collect();
    solve(rows, given.iter().map(|(_, piece)| piece.clone()).collect())
}
