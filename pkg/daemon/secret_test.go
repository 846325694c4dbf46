package daemon

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

func FuzzSecret(f *testing.F) {
	f.Add("hunter2secret", "+")
	f.Add("\x00\xff%s", "#")
	f.Add("postgres://u:p@h/d", "-10.3")
	f.Fuzz(func(t *testing.T, text, flags string) {
		const mark = "~Zq7fX~" // what no address, time stamp or escape looks like by chance
		text = mark + text
		if strings.Trim(flags, "+-# 0123456789.") != "" {
			flags = ""
		}
		s := NewSecret(text)
		held := struct {
			Name string
			Key  Secret
			More []Secret
			Map  map[string]Secret
			Ptr  *Secret
			kept Secret
		}{"n", s, []Secret{s}, map[string]Secret{"k": s}, &s, s}
		var out bytes.Buffer
		for verb := 'A'; verb <= 'z'; verb++ {
			for _, v := range []any{s, &s, held, &held, []Secret{s}, map[string]Secret{"k": s}, [1]any{s}} {
				format := "%" + flags + string(verb) + "\n"
				fmt.Fprintf(&out, format, v)
				out.WriteString(fmt.Errorf(format, v).Error())
			}
		}
		fmt.Fprint(&out, s, held)
		noVerb := "extra"
		//lint:ignore SA5009 a format that does not fit is what is tried here
		fmt.Fprintf(&out, noVerb, s)
		wrong := "wrapped: %w"
		out.WriteString(fmt.Errorf(wrong, s).Error())
		for _, v := range []any{s, held, &held} {
			body, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(body)
		}
		if body, err := xml.Marshal(struct{ Key Secret }{s}); err == nil {
			out.Write(body)
		}
		log := zerolog.New(&out)
		log.Info().Any("a", s).Interface("b", held).Stringer("c", s).Fields(map[string]any{"d": s}).Msgf("%v", s)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "s", s, "h", held)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "s", s, "h", held)
		for _, form := range []string{"~Zq", fmt.Sprintf("%x", mark), fmt.Sprintf("%X", mark)} {
			if strings.Contains(out.String(), form) {
				at := strings.Index(out.String(), form)
				t.Fatalf("%q shows in ...%q", form, out.String()[max(0, at-80):at+len(form)])
			}
		}
		if s.Reveal() != text {
			t.Error("Reveal changed it")
		}
	})
}
