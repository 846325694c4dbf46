package house_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const ours = "github.com/posthouse-io/posthouse/"

// allowed says which of our packages each may import. Arrows point one way:
// services -> ledger, bus, daemon -> engines and contracts -> delivery.
var allowed = map[string]string{
	"migrations": "", "streams": "",
	"pkg/delivery": "", "pkg/claim": "", "pkg/local": "", "pkg/local/child": "", "pkg/smtpsink": "", "pkg/trust": "",
	"pkg/retry":                   "pkg/delivery",
	"pkg/transport":               "pkg/delivery",
	"pkg/transport/smtp":          "pkg/transport pkg/delivery pkg/trust",
	"pkg/transport/transporttest": "pkg/transport pkg/delivery",
	"pkg/bus":                     "streams",
	"pkg/outbox":                  "pkg/bus pkg/planted",
	"pkg/audit":                   "pkg/delivery",
	"pkg/breaker":                 "pkg/delivery",
	"pkg/lane":                    "pkg/audit pkg/breaker pkg/delivery pkg/outbox streams",
	"pkg/quota":                   "pkg/audit pkg/delivery pkg/outbox streams",
	"pkg/pinned":                  "",
	"pkg/planted":                 "",
	"pkg/queue":                   "pkg/claim pkg/lane pkg/pinned pkg/planted",
	"pkg/forward":                 "pkg/delivery",
	"pkg/forward/guard":           "",
	"pkg/forward/http":            "pkg/forward pkg/forward/guard pkg/delivery pkg/trust",
	"pkg/forward/s3":              "pkg/forward pkg/forward/guard pkg/delivery pkg/trust",
	"pkg/forward/sftp":            "pkg/forward pkg/delivery",
	"pkg/forward/filesystem":      "pkg/forward pkg/delivery",
	"pkg/forward/nats":            "pkg/forward pkg/delivery",
	"pkg/forward/forwardtest":     "pkg/forward pkg/delivery",
	"pkg/forward/all":             "pkg/forward pkg/forward/*",
	"pkg/ledger":                  "pkg/audit pkg/delivery pkg/claim pkg/lane pkg/outbox pkg/pinned pkg/planted pkg/queue pkg/quota pkg/retry pkg/transport streams",
	"pkg/settle":                  "pkg/ledger pkg/outbox",
	"pkg/client":                  "pkg/bus pkg/delivery pkg/document streams",
	"pkg/daemon":                  "pkg/bus migrations",
	"pkg/local/localtest":         "pkg/local migrations streams",
	"pkg/document":                "pkg/delivery",
	"pkg/verify":                  "pkg/delivery pkg/document pkg/forward pkg/forward/guard pkg/trust",
	"pkg/verify/verifytest":       "pkg/delivery pkg/document",
	"pkg/docket":                  "pkg/claim pkg/delivery pkg/document pkg/lane pkg/ledger pkg/outbox pkg/pinned pkg/queue streams",
	"pkg/verify/shield":           "pkg/breaker pkg/document pkg/verify",
	"pkg/clerk":                   "pkg/breaker pkg/delivery pkg/docket pkg/document pkg/ledger pkg/outbox pkg/verify streams",
	"services/verifier-retry":     "pkg/* streams",
	"services/verifier-retry/cmd/verifier-retry": "pkg/daemon services/settings services/verifier-retry",
	"services/forwarder":                         "pkg/* streams",
	"services/forwarder/cmd/forwarder":           "pkg/daemon services/settings services/forwarder",
	"services/gateway":                           "pkg/* streams",
	"services/gateway/cmd/gateway":               "pkg/daemon services/settings services/gateway",
	"services/chaos":                             "pkg/* streams migrations services/house/housetest services/settings services/sender",
	"services/chaos/cmd/chaos":                   "pkg/* streams services/chaos",
	"services/sender":                            "pkg/* streams",
	"services/watchdog":                          "pkg/* streams",
	"services/dead-letter":                       "pkg/* streams",
	"services/settings":                          "pkg/daemon streams services/sender services/forwarder services/verifier-retry services/gateway services/watchdog services/dead-letter",
	"services/house":                             "pkg/* streams migrations services/*",
	"services/house/housetest":                   "pkg/* streams migrations services/*",
	"services/bench":                             "pkg/* streams migrations services/sender services/watchdog services/house services/settings",
	"services/posthouse":                         "pkg/* streams migrations services/house services/settings services/bench",
	"services/sender/cmd/sender":                 "pkg/daemon services/settings services/sender",
	"services/watchdog/cmd/watchdog":             "pkg/daemon services/settings services/watchdog",
	"services/dead-letter/cmd/dead-letter":       "pkg/daemon services/settings services/dead-letter",
}

// homes says where a foreign library may be imported: each has one room, and the
// rooms beside it that cannot do without its types.
var homes = map[string]string{
	"github.com/jackc/pgx/":              "migrations pkg/daemon pkg/audit pkg/pinned pkg/queue pkg/lane pkg/quota pkg/docket pkg/clerk pkg/ledger pkg/outbox pkg/settle pkg/local pkg/local/localtest services/forwarder services/gateway services/watchdog services/chaos services/house/housetest services/bench",
	"github.com/nats-io/nats.go":         "streams pkg/bus pkg/outbox pkg/client pkg/daemon pkg/forward/nats pkg/forward/all pkg/local/localtest services/sender services/forwarder services/gateway services/watchdog services/dead-letter services/chaos services/house services/house/housetest services/posthouse services/bench",
	"github.com/nats-io/nats-server/":    "pkg/local",
	"github.com/synadia-io/":             "pkg/bus",
	"github.com/wneessen/go-mail":        "pkg/transport/smtp",
	"github.com/emersion/go-smtp":        "pkg/smtpsink",
	"github.com/caarlos0/env/":           "pkg/daemon pkg/transport/smtp",
	"github.com/pressly/goose/":          "migrations",
	"github.com/sony/gobreaker":          "pkg/breaker",
	"github.com/minio/minio-go/":         "pkg/forward/s3",
	"github.com/pkg/sftp":                "pkg/forward/sftp",
	"golang.org/x/crypto/ssh":            "pkg/forward/sftp",
	"github.com/alecthomas/kong":         "services/posthouse",
	"github.com/danielgtaylor/huma/":     "services/gateway",
	"go.opentelemetry.io/otel/sdk":       "pkg/daemon",
	"go.opentelemetry.io/otel/exporters": "pkg/daemon",
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "work")
	cmd.Dir = "../.."
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for d := json.NewDecoder(out); ; seen++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, ours)
		list, known := allowed[name]
		if !known {
			t.Errorf("%s is not in the table: say what it may import", name)
			continue
		}
		for _, i := range p.Imports {
			if in, is := strings.CutPrefix(i, ours); is {
				if !matches(list, in) {
					t.Errorf("%s imports %s; it may import only [%s]: arrows never turn", name, in, list)
				}
				continue
			}
			for library, rooms := range homes {
				if strings.HasPrefix(i, library) && !matches(rooms, name) {
					t.Errorf("%s imports %s, which lives in [%s]", name, i, rooms)
				}
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if seen < len(allowed)/2 {
		t.Fatalf("go list saw only %d packages", seen)
	}
}

func matches(list, name string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(l string) bool {
		prefix, wild := strings.CutSuffix(l, "*")
		return l == name || wild && strings.HasPrefix(name, prefix)
	})
}
