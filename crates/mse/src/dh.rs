//! Diffie-Hellman over the 768-bit prime of RFC 2409 (group 1), generator 2.

use crypto_bigint::modular::ConstMontyParams;
use crypto_bigint::{U192, U768, const_monty_form, const_monty_params};

use crate::Error;

/// Bytes of a public key and of the secret.
pub const KEY: usize = 96;
/// Bytes of a private key.
pub const SECRET: usize = 20;

const_monty_params!(
    Prime,
    U768,
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404ddef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a63a36210000000000090563",
    "The prime of MSE."
);
const_monty_form!(Element, Prime, "A residue.");

/// A private key.
#[derive(Clone, Copy)]
pub(crate) struct Private(U192);

impl Private {
    pub(crate) fn new(random: &[u8; SECRET]) -> Self {
        let mut bytes = [0; 24];
        bytes[4..].copy_from_slice(random);
        Self(U192::from_be_slice(&bytes))
    }

    pub(crate) fn public(self) -> [u8; KEY] {
        self.power(U768::from_u8(2))
    }

    /// The secret shared with the owner of `theirs`.
    pub(crate) fn shared(self, theirs: &[u8; KEY]) -> Result<[u8; KEY], Error> {
        let theirs = U768::from_be_slice(theirs);
        let minus_one = Prime::PARAMS.modulus().as_ref().wrapping_sub(&U768::ONE);
        if theirs <= U768::ONE || theirs >= minus_one {
            return Err(Error::Key);
        }
        Ok(self.power(theirs))
    }

    fn power(self, base: U768) -> [u8; KEY] {
        let power = Element::new(&base).pow_bounded_exp(&self.0, 8 * SECRET as u32).retrieve();
        let mut bytes = [0; KEY];
        bytes.copy_from_slice(power.to_be_bytes().as_ref());
        bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_ends_find_the_same_secret() {
        for n in 0..8_u8 {
            let (a, b) = (Private::new(&[n; SECRET]), Private::new(&[0xff - n; SECRET]));
            let known = if n == 0 { Err(Error::Key) } else { b.shared(&a.public()) };
            assert_eq!(known.is_ok(), n > 0, "a private key of zero gives the public key 1");
            if n > 0 {
                assert_eq!(a.shared(&b.public()), known);
            }
        }
    }

    #[test]
    fn powers_of_two_below_the_prime_are_exact() {
        let mut seven = [0; SECRET];
        seven[SECRET - 1] = 7;
        let mut want = [0; KEY];
        want[KEY - 1] = 128;
        assert_eq!(Private::new(&seven).public(), want);
    }

    #[test]
    fn keys_that_give_the_secret_away_are_refused() {
        let prime: [u8; KEY] = Prime::PARAMS.modulus().as_ref().to_be_bytes().as_ref().try_into().unwrap();
        let mut one = [0; KEY];
        one[KEY - 1] = 1;
        let mut minus_one = prime;
        minus_one[KEY - 1] -= 1;
        for key in [[0; KEY], one, minus_one, prime, [0xff; KEY]] {
            assert_eq!(Private::new(&[3; SECRET]).shared(&key), Err(Error::Key));
        }
    }
}
