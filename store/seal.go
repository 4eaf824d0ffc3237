package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"fmt"
)

// SealKeyBytes is the length of the key that seals Secrets and their like.
const SealKeyBytes = 32

const sealIDBytes = 4

// sealer encrypts values with AES-256-GCM. A sealed body is the key's id, a
// random nonce and the ciphertext; the mark and the path are bound to it, so a
// value copied to another key of the backend does not open there.
type sealer struct {
	id   [sealIDBytes]byte // tells a wrong key from a damaged value
	aead cipher.AEAD
}

func newSealer(key []byte) (*sealer, error) {
	if len(key) != SealKeyBytes {
		return nil, fmt.Errorf("seal key has %d bytes, must have %d", len(key), SealKeyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("seal key: %w", err)
	}
	s := &sealer{aead: aead}
	sum := sha256.Sum256(append([]byte("headway seal key id\x00"), key...))
	copy(s.id[:], sum[:])
	return s, nil
}

func (s *sealer) seal(mark byte, path string, plain []byte) []byte {
	return s.aead.Seal(append([]byte(nil), s.id[:]...), nil, plain, bound(mark, path))
}

func (s *sealer) open(mark byte, path string, body []byte) ([]byte, error) {
	if len(body) < sealIDBytes+s.aead.Overhead() {
		return nil, errors.New("sealed value is cut short")
	}
	if id := [sealIDBytes]byte(body); id != s.id {
		return nil, fmt.Errorf("sealed with another key (id %x, the key file's id is %x): restore the key file that the cluster was made with", id, s.id)
	}
	plain, err := s.aead.Open(nil, nil, body[sealIDBytes:], bound(mark, path))
	if err != nil {
		return nil, errors.New("sealed value does not open: it was damaged, or copied from another object")
	}
	return plain, nil
}

func bound(mark byte, path string) []byte {
	return append([]byte{mark}, path...)
}
