package forwarder

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/guard"
)

// errAway says that a body may be there later; errBusy, that others are being fetched.
var (
	errAway = errors.New("the body can not be fetched now")
	errBusy = fmt.Errorf("%w: too many others are being fetched", errAway)
)

// fetchTime bounds one fetch.
const fetchTime = 4 * time.Minute

// fetcher gets bodies that are not in the message. It trusts only bytes of the
// size and hash that the message says, follows no redirect, and dials public
// addresses only, unless told otherwise.
type fetcher struct{ client *http.Client }

func newFetcher(private bool) fetcher {
	policy := guard.Public
	if private {
		policy = guard.Any
	}
	return fetcher{client: &http.Client{Timeout: fetchTime, Transport: &http.Transport{DialContext: guard.Dialer(policy, 5*time.Second).DialContext, TLSHandshakeTimeout: 10 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (f fetcher) get(ctx context.Context, ref *document.BodyReference) ([]byte, error) {
	if ref.URL == "" {
		return nil, errors.New("body_ref.object: this version has no payload store to look into; give a url")
	}
	sum, err := ref.Sum()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ref.URL, nil)
	if err != nil {
		return nil, errors.New("body_ref.url can not be asked for")
	}
	resp, err := f.client.Do(req)
	if errors.Is(err, guard.ErrAddress) {
		return nil, errors.New("body_ref.url leads to an address that is not allowed (INBOUND_FETCH_ALLOW_PRIVATE)")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", errAway, forward.Reason(err))
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusOK:
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout:
		return nil, fmt.Errorf("%w: the server says %d", errAway, resp.StatusCode)
	default:
		return nil, fmt.Errorf("body_ref.url: the server says %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, ref.Size+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %s", errAway, forward.Reason(err))
	case int64(len(body)) != ref.Size || sha256.Sum256(body) != sum:
		return nil, errors.New("what body_ref.url gives does not have the size and hash of body_ref")
	}
	return body, nil
}
