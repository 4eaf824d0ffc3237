package git

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshSignature is the blob of an SSH signature (PROTOCOL.sshsig of OpenSSH).
type sshSignature struct {
	Magic     [6]byte
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// signedData is what is really signed.
type signedData struct {
	Magic     [6]byte
	Namespace string
	Reserved  string
	Hash      string
	Sum       []byte
}

const sshMagic = "SSHSIG"

// verifySSH returns why an SSH signature of the payload does not count.
func (s Signers) verifySSH(payload, armored []byte, committed, now time.Time) error {
	sig, key, err := parseSSHSignature(armored)
	if err != nil {
		return err
	}
	if sig.Namespace != "git" {
		return fmt.Errorf("its signature is for the namespace %.60q and not for git", sig.Namespace)
	}
	if err := sig.check(payload, key); err != nil {
		return err
	}
	times := []time.Time{committed}
	if !now.IsZero() {
		times = append(times, now)
	}
	var why error
	for _, line := range s.ssh {
		matches, err := line.allows(key, times)
		if matches && err == nil {
			return nil
		}
		if matches {
			why = err
		}
	}
	if why != nil {
		return why
	}
	if cert, ok := key.(*ssh.Certificate); ok {
		return fmt.Errorf("it is signed with a certificate for the key %s, and its authority %s is not among the allowed signers",
			ssh.FingerprintSHA256(cert.Key), ssh.FingerprintSHA256(cert.SignatureKey))
	}
	return fmt.Errorf("it is signed with the key %s %s, which is not among the allowed signers", key.Type(), ssh.FingerprintSHA256(key))
}

// parseSSHSignature reads an armored SSH signature.
func parseSSHSignature(armored []byte) (*sshSignature, ssh.PublicKey, error) {
	block, rest := pem.Decode(armored)
	if block == nil || block.Type != "SSH SIGNATURE" || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, nil, errors.New("its SSH signature is damaged")
	}
	var sig sshSignature
	if err := ssh.Unmarshal(block.Bytes, &sig); err != nil || string(sig.Magic[:]) != sshMagic {
		return nil, nil, errors.New("its SSH signature is damaged")
	}
	if sig.Version != 1 {
		return nil, nil, fmt.Errorf("its SSH signature is of version %d, only 1 is known", sig.Version)
	}
	key, err := ssh.ParsePublicKey(sig.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("the key of its SSH signature cannot be read: %w", err)
	}
	return &sig, key, nil
}

// check says whether the signature is that of the key for the payload.
func (sig *sshSignature) check(payload []byte, key ssh.PublicKey) error {
	data := signedData{Magic: sig.Magic, Namespace: sig.Namespace, Reserved: sig.Reserved, Hash: sig.Hash}
	switch sig.Hash {
	case "sha256":
		sum := sha256.Sum256(payload)
		data.Sum = sum[:]
	case "sha512":
		sum := sha512.Sum512(payload)
		data.Sum = sum[:]
	default:
		return fmt.Errorf("its SSH signature uses the hash %.60q; sha256 and sha512 are known", sig.Hash)
	}
	var raw ssh.Signature
	if err := ssh.Unmarshal(sig.Signature, &raw); err != nil {
		return errors.New("its SSH signature is damaged")
	}
	if weak(raw.Format) {
		return fmt.Errorf("its SSH signature is of the kind %s, which is too weak", raw.Format)
	}
	if err := key.Verify(ssh.Marshal(data), &raw); err != nil {
		return fmt.Errorf("its signature does not fit: the commit was changed after it was signed (%w)", err)
	}
	return nil
}

// weak says whether a kind of signature can be forged today.
func weak(format string) bool { return format == ssh.KeyAlgoRSA || format == "ssh-dss" }

// allows says whether the line is about the key, and whether it allows it at all of
// the times.
func (s signer) allows(key ssh.PublicKey, times []time.Time) (matches bool, err error) {
	cert, certified := key.(*ssh.Certificate)
	plain := key
	if certified {
		plain = cert.SignatureKey
	}
	if s.authority != certified || !bytes.Equal(s.key.Marshal(), plain.Marshal()) {
		return false, nil
	}
	if s.namespaces != "" && !matchList(s.namespaces, "git") {
		return true, fmt.Errorf("the key of %s is not allowed for the namespace git but for %s", s.where, s.namespaces)
	}
	for _, at := range times {
		if err := s.valid(at); err != nil {
			return true, err
		}
		if !certified {
			continue
		}
		if err := s.certifies(cert, at); err != nil {
			return true, fmt.Errorf("its certificate of the authority of %s: %w", s.where, err)
		}
	}
	return true, nil
}

// certifies says whether a certificate of the line's authority is good at a time.
func (s signer) certifies(cert *ssh.Certificate, at time.Time) error {
	if cert.CertType != ssh.UserCert {
		return errors.New("it is none of a user")
	}
	if cert.Signature == nil || weak(cert.Signature.Format) {
		return errors.New("its signature is too weak")
	}
	checker := ssh.CertChecker{Clock: func() time.Time { return at }}
	for _, principal := range cert.ValidPrincipals {
		if matchList(s.principals, principal) {
			return checker.CheckCert(principal, cert)
		}
	}
	return fmt.Errorf("none of its principals (%.200s) is allowed", strings.Join(cert.ValidPrincipals, ", "))
}
