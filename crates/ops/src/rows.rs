//! A tensor as rows of features, one row a token: also where heads stand between.

/// Which dimensions are the features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Heads,
    Merged,
}

/// How a tensor lies as a matrix: element `(row, feature)` is at [`Rows::at`]`(row * features + feature)` of the tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rows {
    pub kind: Kind,
    pub rows: usize,
    pub features: usize,
    /// Tokens, and features of one head, where heads stand between.
    tokens: usize,
    size: usize,
}

impl Rows {
    /// The last dimension is the features.
    pub fn plain(dims: &[usize]) -> Option<Self> {
        let features = *dims.last()?;
        let count: usize = dims.iter().product();
        (features > 0 && count > 0).then(|| Self {
            kind: Kind::Plain,
            rows: count / features,
            features,
            tokens: 1,
            size: features,
        })
    }

    /// `[.., h, s, d]`: the heads of a token, one after another, are its features.
    pub fn heads(dims: &[usize]) -> Option<Self> {
        let &[ref batch @ .., h, s, d] = dims else {
            return None;
        };
        if h < 2 || s == 0 || d == 0 {
            return None;
        }
        Some(Self {
            kind: Kind::Heads,
            rows: batch.iter().product::<usize>() * s,
            features: h * d,
            tokens: s,
            size: d,
        })
    }

    /// `[.., s, h, d]`: the last two dimensions are the features.
    pub fn merged(dims: &[usize]) -> Option<Self> {
        let &[ref batch @ .., h, d] = dims else {
            return None;
        };
        let rows = batch.iter().product();
        (h > 1 && d > 0 && !batch.is_empty()).then_some(Self {
            kind: Kind::Merged,
            rows,
            features: h * d,
            tokens: 1,
            size: d,
        })
    }

    /// Every way there is.
    pub fn all(dims: &[usize]) -> Vec<Self> {
        [Self::plain(dims), Self::heads(dims), Self::merged(dims)]
            .into_iter()
            .flatten()
            .collect()
    }

    pub fn count(&self) -> usize {
        self.rows * self.features
    }

    /// Where element `row * features + feature` is.
    pub fn at(&self, index: usize) -> usize {
        if self.kind != Kind::Heads {
            return index;
        }
        let (row, feature) = (index / self.features, index % self.features);
        let (batch, token) = (row / self.tokens, row % self.tokens);
        let (head, inside) = (feature / self.size, feature % self.size);
        ((batch * (self.features / self.size) + head) * self.tokens + token) * self.size + inside
    }

    /// The element, as `row * features + feature`, at a place of the tensor.
    pub fn from(&self, at: usize) -> usize {
        if self.kind != Kind::Heads {
            return at;
        }
        let heads = self.features / self.size;
        let (outer, inside) = (at / self.size, at % self.size);
        let (token, outer) = (outer % self.tokens, outer / self.tokens);
        let (head, batch) = (outer % heads, outer / heads);
        ((batch * self.tokens + token) * heads + head) * self.size + inside
    }

    /// How many features from this one on lie beside each other in the tensor.
    pub fn run(&self, feature: usize) -> usize {
        if self.kind == Kind::Heads {
            self.size - feature % self.size
        } else {
            self.features - feature
        }
    }

    #[cfg(test)]
    pub fn gather(&self, values: &[f64]) -> Vec<f64> {
        (0..self.count())
            .map(|index| values[self.at(index)])
            .collect()
    }

    pub fn scatter(&self, rows: &[f64]) -> Vec<f64> {
        let mut values = vec![0.0; rows.len()];
        rows.iter()
            .enumerate()
            .for_each(|(index, value)| values[self.at(index)] = *value);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_put_beside_each_other_and_back() {
        let dims = [2, 3, 4, 5];
        let values: Vec<f64> = (0..120).map(f64::from).collect();
        let rows = Rows::heads(&dims).unwrap();
        let gathered = rows.gather(&values);
        // Batch 1, token 2: head 0 begins at ((1*3+0)*4+2)*5, head 1 at ((1*3+1)*4+2)*5.
        let row = 4 + 2;
        assert_eq!((gathered[row * 15], gathered[row * 15 + 5]), (70.0, 90.0));
        assert_eq!(rows.scatter(&gathered), values);
        assert!((0..120).all(|index| rows.from(rows.at(index)) == index));
    }
}
