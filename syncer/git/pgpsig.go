package git

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// verifyPGP returns why an OpenPGP signature of the payload does not count.
func (s Signers) verifyPGP(payload, armored []byte, now time.Time) error {
	if len(s.pgp) == 0 {
		return errors.New("it is signed with OpenPGP, and there is no keyring of allowed signers")
	}
	body, sig, err := parsePGPSignature(armored)
	if err != nil {
		return err
	}
	switch sig.Hash {
	case crypto.MD5, crypto.SHA1, crypto.RIPEMD160:
		return fmt.Errorf("its OpenPGP signature uses the hash %s, which is too weak", sig.Hash)
	}
	if sig.SigType != packet.SigTypeBinary {
		return fmt.Errorf("its OpenPGP signature is of the type %#x, none of a file", uint8(sig.SigType))
	}
	// What the committer's clock says comes a moment before the signature is made,
	// so its own time counts.
	times := []time.Time{sig.CreationTime}
	if now.After(sig.CreationTime) {
		times = append(times, now)
	}
	for _, at := range times {
		config := &packet.Config{Time: func() time.Time { return at }}
		_, _, err := openpgp.VerifyDetachedSignature(s.pgp, bytes.NewReader(payload), bytes.NewReader(body), config)
		var invalid pgperrors.SignatureError
		switch id := keyID(sig); {
		case err == nil:
		case errors.Is(err, pgperrors.ErrUnknownIssuer):
			return fmt.Errorf("it is signed with the OpenPGP key %s, which is not in the keyring or may not sign", id)
		case errors.Is(err, pgperrors.ErrKeyExpired):
			return fmt.Errorf("the OpenPGP key %s has expired", id)
		case errors.Is(err, pgperrors.ErrKeyRevoked):
			return fmt.Errorf("the OpenPGP key %s is revoked", id)
		case errors.Is(err, pgperrors.ErrSignatureExpired):
			return fmt.Errorf("its signature with the OpenPGP key %s has expired", id)
		case errors.As(err, &invalid):
			return fmt.Errorf("its signature does not fit: the commit was changed after it was signed (%w)", err)
		default:
			return fmt.Errorf("its OpenPGP signature cannot be verified: %w", err)
		}
	}
	return nil
}

func keyID(sig *packet.Signature) string {
	if len(sig.IssuerFingerprint) > 0 {
		return fmt.Sprintf("%X", sig.IssuerFingerprint)
	}
	if sig.IssuerKeyId != nil {
		return fmt.Sprintf("%016X", *sig.IssuerKeyId)
	}
	return "of an unknown name"
}

// parsePGPSignature reads an armored OpenPGP signature: one packet and no more.
func parsePGPSignature(armored []byte) (body []byte, sig *packet.Signature, err error) {
	damaged := errors.New("its OpenPGP signature is damaged")
	in := bytes.NewReader(armored)
	block, err := armor.Decode(in)
	if err != nil || block.Type != openpgp.SignatureType {
		return nil, nil, damaged
	}
	if body, err = io.ReadAll(block.Body); err != nil {
		return nil, nil, damaged
	}
	packets := packet.NewReader(bytes.NewReader(body))
	p, err := packets.Next()
	if err != nil {
		return nil, nil, damaged
	}
	sig, ok := p.(*packet.Signature)
	if !ok {
		return nil, nil, damaged
	}
	if _, err := packets.Next(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("its OpenPGP signature has more than one packet")
	}
	return body, sig, nil
}
