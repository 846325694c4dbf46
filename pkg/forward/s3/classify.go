package s3

import (
	"crypto/tls"
	"errors"
	"net"
	"strconv"

	"github.com/minio/minio-go/v7"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/guard"
)

// answered classifies an error that the store itself sent; told is false for any
// other.
func answered(err error) (out forward.Outcome, told bool) {
	var r minio.ErrorResponse
	if !errors.As(err, &r) || r.StatusCode == 0 {
		return forward.Outcome{}, false
	}
	code := r.Code
	if code == "" {
		code = "HTTP_" + strconv.Itoa(r.StatusCode)
	}
	category, server := categoryOf(r.StatusCode, r.Code)
	return forward.Refused(category, forward.PhaseFinal, code, r.Message, server), true
}

// categoryOf reads status and code (Amazon S3 API reference, "Error responses").
func categoryOf(status int, code string) (delivery.Category, bool) {
	switch code {
	case "SlowDown", "TooManyRequests", "RequestLimitExceeded":
		return delivery.Quota, true
	case "RequestTimeout", "RequestTimeTooSkewed", "OperationAborted", "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody", "ExpiredToken":
		return delivery.Transient, true // the clock, the line or a token that is renewed
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AccountProblem", "AllAccessDisabled":
		return delivery.Auth, true
	case "NoSuchBucket", "PermanentRedirect", "AuthorizationHeaderMalformed", "InvalidBucketName":
		return delivery.Config, true
	case "EntityTooLarge", "EntityTooSmall", "KeyTooLongError":
		return delivery.InvalidInput, false
	}
	switch {
	case status == 408 || status == 409 || status >= 500:
		return delivery.Transient, true
	case status == 429:
		return delivery.Quota, true
	case status == 401 || status == 403:
		return delivery.Auth, true
	case status < 400 || status == 404:
		return delivery.Config, true
	}
	return delivery.Permanent, false
}

// refused classifies an error from before the last byte was handed over.
func refused(err error) forward.Outcome {
	if out, told := answered(err); told {
		return out
	}
	if errors.Is(err, guard.ErrAddress) {
		return forward.Refused(delivery.Config, forward.PhaseDial, forward.CodeAddress, forward.Reason(err), true)
	}
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return forward.Refused(delivery.Transient, forward.PhaseDial, forward.CodeTLS, forward.Reason(err), true)
	case errors.As(err, &dial) && dial.Op == "dial":
		return forward.Refused(delivery.Transient, forward.PhaseDial, forward.CodeDial, forward.Reason(err), true)
	}
	return forward.Refused(delivery.Transient, forward.PhaseUpload, forward.CodeLost, forward.Reason(err), true)
}
