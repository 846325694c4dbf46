package gateway

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// form makes a form of fields: name, content; a document is a file.
func form(t testing.TB, parts ...string) (body []byte, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i+1 < len(parts); i += 2 {
		write := func(name string) (interface{ Write([]byte) (int, error) }, error) { return w.CreateFormField(name) }
		if parts[i] == "document" {
			write = func(name string) (interface{ Write([]byte) (int, error) }, error) {
				return w.CreateFormFile(name, "invoice.xml")
			}
		}
		p, err := write(parts[i])
		if err == nil {
			_, err = p.Write([]byte(parts[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), w.FormDataContentType()
}

// A document comes by either form, once; the bytes stay what they were.
func TestDocumentsByHTTP(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	const path = "/api/inbound/document/acme"
	content := "<a>\r\n\x00\xff</a>"
	body, kind := form(t, "metadata", metadata("1"), "document", content)
	status, h, answer := s.ask(publisher, "POST", path, body, "Content-Type", kind)
	first := as[received](t, answer)
	if status != http.StatusAccepted || first.Repeats != "" || h.Get("Location") != "/api/inbound/status/"+first.ID.String() {
		t.Fatalf("%d %v %s", status, h, answer)
	}
	if _, _, got := s.ask(operator, "GET", "/api/ops/inbound/sbdh-1/payload", nil); string(got) != content {
		t.Errorf("%q", got)
	}
	st := as[document.Status](t, s.must(http.StatusOK, operator, "GET", h.Get("Location"), ""))
	if st.State != document.Received || st.Tenant != "acme" || st.Size != int64(len(content)) {
		t.Errorf("%+v", st)
	}
	// Repeats, in the other form too, and one with other content.
	again := as[received](t, s.must(http.StatusOK, publisher, "POST", path, withBody(metadata("1"), []byte(content))))
	if again.ID != first.ID || again.Repeats != "as4" {
		t.Errorf("%+v", again)
	}
	s.must(http.StatusConflict, publisher, "POST", path, withBody(metadata("1"), []byte("other")))
	s.must(http.StatusConflict, publisher, "POST", path, withBody(metadata("2", "sbdh_instance_id", "sbdh-1"), []byte("other")))
	if events, documents := s.count(`SELECT count(*) FROM event WHERE kind = 'document'`), s.count(`SELECT count(*) FROM document`); events != 1 || documents != 1 || len(s.rung) != 1 {
		t.Errorf("%d documents, %d events, %d bells, want one of each", documents, events, len(s.rung))
	}
	// Many at once: one is stored, all hear of it.
	var wg sync.WaitGroup
	ids := make([]delivery.ID, 6)
	for i := range ids {
		wg.Go(func() {
			status, _, answer := s.ask(publisher, "POST", path, []byte(withBody(metadata("many"), []byte("x"))))
			if status != http.StatusAccepted && status != http.StatusOK {
				t.Errorf("%d %s", status, answer)
				return
			}
			ids[i] = as[received](t, answer).ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("two ids of one document: %v", ids)
		}
	}
}

func TestDocumentsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	const path = "/api/inbound/document/acme"
	const secret = "MARIANNE-FISCHER"
	good := metadata("1")
	large := bytes.Repeat([]byte("x"), s.desk.largest)
	s.must(http.StatusAccepted, publisher, "POST", path, withBody(metadata("large"), large))
	for _, c := range []struct {
		name string
		want int
		body string
	}{
		{"one byte too many", 413, withBody(good, append(large, 'x'))},
		{"far too many", 413, withBody(good, bytes.Repeat(large, 3))},
		{"nothing", 400, ""},
		{"no object", 400, `[1]`},
		{"null", 400, `null`},
		{"no body", 400, good},
		{"a body that is not base64", 400, strings.TrimSuffix(good, "}") + `,"body":"` + secret + `!"}`},
		{"an unknown field", 400, withBody(metadata("1", "surprise", secret), []byte("x"))},
		{"no receiver", 400, withBody(metadata("1", "receiver_id", ""), []byte("x"))},
		{"a time that is none", 400, withBody(metadata("1", "received_at", secret), []byte("x"))},
		{"long metadata", 400, withBody(metadata("1", "document_type_id", strings.Repeat("x", 70_000)), []byte("x"))},
		{"a NUL", 400, withBody(metadata("1", "sbdh_instance_id", "a\x00b"), []byte("x"))},
		{"a body elsewhere", 400, strings.TrimSuffix(withBody(good, []byte("x")), "}") + `,"body_ref":{"url":"http://a/b"}}`},
	} {
		status, _, answer := s.ask(publisher, "POST", path, []byte(c.body))
		if status != c.want || strings.Contains(string(answer), secret) {
			t.Errorf("%s: %d %.200s, want %d", c.name, status, answer, c.want)
		}
	}
	for _, parts := range [][]string{{}, {"metadata", good}, {"document", "x"}, {"metadata", good, "document", ""}, {"metadata", good, "metadata", good, "document", "x"},
		{"metadata", good, "document", "x", "document", "y"}, {"metadata", good, "document", "x", "more", "y"}, {"metadata", "null", "document", "x"}, {"metadata", withBody(good, []byte("y")), "document", "x"}} {
		body, kind := form(t, parts...)
		if status, _, answer := s.ask(publisher, "POST", path, body, "Content-Type", kind); status != http.StatusBadRequest {
			t.Errorf("%v: %d %s", parts, status, answer)
		}
	}
	body, kind := form(t, "metadata", good, "document", "x")
	for _, kind := range []string{"multipart/form-data", "multipart/form-data; boundary=other", strings.Replace(kind, "form-data", "mixed", 1), "text/xml", "a;;"} {
		if status, _, answer := s.ask(publisher, "POST", path, body, "Content-Type", kind); status != http.StatusBadRequest && status != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %d %s", kind, status, answer)
		}
	}
	if status, _, _ := s.ask(publisher, "POST", path, body[:len(body)/2], "Content-Type", kind); status != http.StatusBadRequest {
		t.Errorf("half a form: %d", status)
	}
	for _, tenant := range []string{"a.b", "%2A", "a%20b", "%00", strings.Repeat("a", 65)} {
		if status, _, answer := s.ask(publisher, "POST", "/api/inbound/document/"+tenant, []byte(withBody(good, []byte("x")))); status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
			t.Errorf("tenant %.20s: %d %s", tenant, status, answer)
		}
	}
	if n := s.count(`SELECT count(*) FROM document`); n != 1 {
		t.Errorf("%d documents, want the large one alone", n)
	}
	if strings.Contains(s.log.String(), secret) {
		t.Error("the log quotes a document")
	}
}

// Whatever comes, reading it ends in a document within its bounds, or a refusal.
func FuzzRead(f *testing.F) {
	body, kind := form(f, "metadata", metadata("1"), "document", "x")
	f.Add(kind, body)
	f.Add("application/json", []byte(withBody(metadata("1"), []byte("x"))))
	f.Add("application/json", []byte(`{"body":"AA==","BODY":"AA=="}`))
	f.Add("multipart/form-data; boundary=a", []byte("--a\r\nContent-Disposition: form-data; name=metadata\r\n\r\n{}\r\n--a--"))
	d := &desk{largest: 100}
	f.Fuzz(func(t *testing.T, kind string, raw []byte) {
		in, body, err := d.read(&incoming{ContentType: kind, RawBody: raw})
		if err != nil {
			if _, told := refusal(err); !told {
				t.Fatalf("not a refusal: %v", err)
			}
			return
		}
		if len(body) == 0 || len(body) > d.largest || in.Body != nil || in.BodyRef != nil || in.SBDHInstanceID == "" || in.AS4At == nil {
			t.Fatalf("%+v %d", in, len(body))
		}
	})
}
