package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
)

// service is a git service that runs beside us or behind ssh, and speaks version 0
// of git's protocol.
type service struct {
	in   io.WriteCloser
	out  *io.LimitedReader
	end  func() error  // closes in, waits for the end and makes it come; may be called again
	said func() string // what it wrote to its stderr; after end
}

// maxRefs bounds the list of refs of a repository, in bytes.
const maxRefs = 64 << 20

// session is a conversation with a service: go-git's own sessions cannot be ended
// by a context, and read the configuration of the user that we run as. Everything
// ends when the context that the service was started with does.
type session struct {
	service
	write   bool // receive-pack
	maxPack int64
	refs    *packp.AdvRefs
	begun   bool // more than the list of refs was asked for
}

var (
	_ transport.UploadPackSession  = (*session)(nil)
	_ transport.ReceivePackSession = (*session)(nil)
)

// AdvertisedReferences implements transport.Session.
func (s *session) AdvertisedReferences() (*packp.AdvRefs, error) {
	return s.AdvertisedReferencesContext(context.Background())
}

// AdvertisedReferencesContext implements transport.Session.
func (s *session) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	if s.refs != nil {
		return s.refs, nil
	}
	s.out.N = maxRefs
	refs := packp.NewAdvRefs()
	err := refs.Decode(s.out)
	if errors.Is(err, packp.ErrEmptyAdvRefs) {
		err = nil
	}
	if err != nil {
		return nil, s.broken(err)
	}
	if refs.IsEmpty() && !s.write {
		return nil, transport.ErrEmptyRemoteRepository
	}
	transport.FilterUnsupportedCapabilities(refs.Capabilities)
	s.refs = refs
	return refs, nil
}

// UploadPack implements transport.UploadPackSession.
func (s *session) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	s.begun = true
	s.out.N = s.maxPack
	err := req.UploadRequest.Encode(s.in)
	if err == nil {
		err = req.UploadHaves.Encode(s.in, true)
	}
	if err == nil {
		err = pktline.NewEncoder(s.in).EncodeString("done\n")
	}
	res := packp.NewUploadPackResponse(req)
	if err == nil {
		err = res.Decode(io.NopCloser(s.out))
	}
	if err != nil {
		return nil, s.broken(err)
	}
	return res, nil
}

// ReceivePack implements transport.ReceivePackSession.
func (s *session) ReceivePack(_ context.Context, req *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	s.begun = true
	s.out.N = maxRefs
	// A service that has no use for the rest of a pack may have answered all the same.
	sent := errors.Join(req.Encode(s.in), s.in.Close())
	var answer io.Reader = s.out
	if kind, ok := sidebandOf(req.Capabilities); ok {
		d := sideband.NewDemuxer(kind, s.out)
		d.Progress = req.Progress
		answer = d
	}
	report := packp.NewReportStatus()
	if err := report.Decode(answer); err != nil {
		return nil, s.broken(errors.Join(sent, err))
	}
	return report, report.Error()
}

// sidebandOf returns the kind of side band that the capabilities name.
func sidebandOf(c *capability.List) (sideband.Type, bool) {
	switch {
	case c.Supports(capability.Sideband64k):
		return sideband.Sideband64k, true
	case c.Supports(capability.Sideband):
		return sideband.Sideband, true
	}
	return 0, false
}

// Close ends the conversation.
func (s *session) Close() error {
	if !s.begun {
		_, _ = s.in.Write(pktline.FlushPkt) // a polite end; a service that is gone needs none
	}
	return s.end()
}

// broken is for a conversation that has ended too early: what the service said
// tells more than err.
func (s *session) broken(err error) error {
	_ = s.end() // it has failed already
	said := s.said()
	if line := new(pktline.ErrorLine); errors.As(err, &line) {
		said = line.Text
	}
	said = strings.TrimSpace(printable(said))
	switch lower := strings.ToLower(said); {
	case said == "":
		if errors.Is(err, packp.ErrEmptyInput) {
			return ofClass(ErrUnreachable, "the connection ended before the repository answered")
		}
		return err
	case strings.Contains(lower, "does not appear to be a git repository"):
		return fmt.Errorf("not a git repository: %w", ErrNotFound)
	case containsAny(lower, "not found", "does not exist", "no such repository", "could not be found"):
		return transport.ErrRepositoryNotFound
	case containsAny(lower, "denied", "not allowed", "not authorized", "unauthorized", "forbidden", "read only", "read-only", "permission", "dubious ownership"):
		return ofClass(ErrNotAllowed, "it is refused: %.500s", said)
	}
	return fmt.Errorf("%w; the other side says: %.500s", err, said)
}

func containsAny(s string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
