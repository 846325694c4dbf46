package s3

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/trust"
)

// Config describes the bucket.
type Config struct {
	Bucket          string `env:"FORWARDING_S3_BUCKET" doc:"bucket that documents are put into"`
	Region          string `env:"FORWARDING_S3_REGION" doc:"region of the bucket"`
	Endpoint        string `env:"FORWARDING_S3_ENDPOINT" doc:"URL of the store; empty means Amazon's for the region"`
	AccessKeyID     string `env:"FORWARDING_S3_ACCESS_KEY_ID" doc:"access key; empty means that of the environment (AWS_*) or of the machine's role"`
	SecretAccessKey string `env:"FORWARDING_S3_SECRET_ACCESS_KEY" secret:"true" json:"-" doc:"secret of FORWARDING_S3_ACCESS_KEY_ID"`
	PathStyle       bool   `env:"FORWARDING_S3_PATH_STYLE_ACCESS" envDefault:"false" doc:"the bucket stands in the path instead of the host name"`
	AllowPrivate    bool   `env:"FORWARDING_S3_ALLOW_PRIVATE" envDefault:"false" doc:"the store may have a private or loopback address, and then http:// is allowed"`
	CAFile          string `env:"FORWARDING_S3_CA_FILE" doc:"PEM file with further certificate authorities to trust"`

	KeyPrefix     string `env:"FORWARDING_S3_KEY_PREFIX" doc:"what every key starts with; a slash is added when it does not end with one"`
	Pattern       string `env:"FORWARDING_S3_FILENAME_PATTERN" envDefault:"{sbdh-instance-id}_{incoming-id}" doc:"rest of a key without .xml; {datetime}, {incoming-id} (needed), {sbdh-instance-id}, {tenant}"`
	WriteMetadata bool   `env:"FORWARDING_S3_WRITE_METADATA" envDefault:"false" doc:"put a .json object with the document's metadata, before the document"`
	Link          string `env:"FORWARDING_S3_LINK" envDefault:"none" doc:"sync or async: afterwards post a link to the backend of FORWARDING_HTTP_*; none: do not"`

	ConnectTimeout  time.Duration `env:"FORWARDING_S3_CONNECT_TIMEOUT" envDefault:"5s" min:"10ms" max:"1m" doc:"limit for opening a connection, and again for its TLS handshake"`
	ResponseTimeout time.Duration `env:"FORWARDING_S3_RESPONSE_TIMEOUT" envDefault:"1m" min:"10ms" max:"30m" doc:"limit for the answer after the last byte of the object"`
	Timeout         time.Duration `env:"FORWARDING_S3_TIMEOUT" envDefault:"5m" min:"10ms" max:"1h" doc:"limit for one forward from beginning to end, without the link"`
}

// Values of Link.
const (
	LinkNone  = "none"
	LinkSync  = "sync"
	LinkAsync = "async"
)

// LongestForward bounds one Forward without a link, whatever the store does.
func (c Config) LongestForward() time.Duration { return c.Timeout + time.Second }

// Check names every fault at once, each by its variable, none with a secret.
func (c Config) Check() error {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf(name+": "+format, args...))
	}
	if err := s3utils.CheckValidBucketNameStrict(c.Bucket); err != nil {
		fault("FORWARDING_S3_BUCKET", "%.64q is no bucket name", c.Bucket)
	}
	if c.Region == "" && c.Endpoint == "" {
		fault("FORWARDING_S3_REGION", "and FORWARDING_S3_ENDPOINT are both empty; one is needed")
	}
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		switch {
		case err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
			fault("FORWARDING_S3_ENDPOINT", "is not a URL such as https://s3.eu-central-1.amazonaws.com, without a path")
		case u.User != nil:
			fault("FORWARDING_S3_ENDPOINT", "must not hold a user or password: use FORWARDING_S3_ACCESS_KEY_ID and FORWARDING_S3_SECRET_ACCESS_KEY")
		case u.Scheme == "http" && !c.AllowPrivate:
			fault("FORWARDING_S3_ENDPOINT", "http:// would send documents in plain text; use https://, or inside a private network set FORWARDING_S3_ALLOW_PRIVATE")
		case u.Scheme != "http" && u.Scheme != "https":
			fault("FORWARDING_S3_ENDPOINT", "scheme %.16q is not https", u.Scheme)
		}
	}
	if (c.AccessKeyID == "") != (c.SecretAccessKey == "") {
		fault("FORWARDING_S3_ACCESS_KEY_ID", "and FORWARDING_S3_SECRET_ACCESS_KEY go together")
	}
	if _, err := trust.Roots(c.CAFile); err != nil {
		fault("FORWARDING_S3_CA_FILE", "%w", err)
	}
	if len(c.KeyPrefix) > 200 || strings.HasPrefix(c.KeyPrefix, "/") || strings.Contains("/"+c.KeyPrefix+"/", "/../") || strings.ContainsFunc(c.KeyPrefix, func(r rune) bool { return r < ' ' }) {
		fault("FORWARDING_S3_KEY_PREFIX", "%.200q is longer than 200 bytes, starts with a slash or leaves its folder", c.KeyPrefix)
	}
	if _, err := forward.ParsePattern(c.Pattern); err != nil {
		fault("FORWARDING_S3_FILENAME_PATTERN", "%w", err)
	}
	if c.Link != LinkNone && c.Link != LinkSync && c.Link != LinkAsync {
		fault("FORWARDING_S3_LINK", "%.16q is none of none, sync, async", c.Link)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"FORWARDING_S3_CONNECT_TIMEOUT", c.ConnectTimeout},
		{"FORWARDING_S3_RESPONSE_TIMEOUT", c.ResponseTimeout},
		{"FORWARDING_S3_TIMEOUT", c.Timeout},
	} {
		if d.value <= 0 {
			fault(d.name, "%s must be more than 0", d.value)
		}
	}
	return errors.Join(faults...)
}

// String names the bucket without a secret.
func (c Config) String() string { return fmt.Sprintf("s3 bucket %s prefix %q", c.Bucket, c.KeyPrefix) }

// GoString keeps the secret out of %#v as well.
func (c Config) GoString() string { return c.String() }

// prefix is what every key starts with.
func (c Config) prefix() string {
	if c.KeyPrefix == "" || strings.HasSuffix(c.KeyPrefix, "/") {
		return c.KeyPrefix
	}
	return c.KeyPrefix + "/"
}
