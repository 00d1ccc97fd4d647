package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
)

//go:embed static openapi.json
var files embed.FS

// assets are the files of the front end. They stand below a name made of their
// content, so that browsers keep them for ever and modules import each other by
// relative names.
type assets struct {
	digest string
	page   []byte
	etag   string
}

func newAssets(cfg Config) *assets {
	h := sha256.New()
	_ = fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		h.Write([]byte(name + "\x00"))
		h.Write(b)
		return err
	})
	a := &assets{digest: hex.EncodeToString(h.Sum(nil))[:16]}
	page := template.Must(template.ParseFS(files, "static/index.html"))
	var b bytes.Buffer
	_ = page.Execute(&b, struct{ Title, Assets string }{cfg.Title, "assets/" + a.digest}) // into memory, of two strings
	a.page = b.Bytes()
	sum := sha256.Sum256(a.page)
	a.etag = `"` + hex.EncodeToString(sum[:8]) + `"`
	return a
}

var contentTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json; charset=utf-8",
}

// serve answers with a file of the front end.
func (c *console) asset(w http.ResponseWriter, r *http.Request) {
	name := path.Clean(r.PathValue("file"))
	kind := contentTypes[path.Ext(name)]
	b, err := files.ReadFile("static/" + name)
	if err != nil || kind == "" || r.PathValue("digest") != c.assets.digest {
		c.fail(w, r, errNotHere)
		return
	}
	w.Header().Set("Content-Type", kind)
	serveKept(w, r, b, `"`+c.assets.digest+`"`, "private, max-age=31536000, immutable")
}

func (c *console) page(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	serveKept(w, r, c.assets.page, c.assets.etag, "no-cache")
}

func (c *console) openapi(w http.ResponseWriter, r *http.Request) {
	b, err := files.ReadFile("openapi.json")
	if err != nil {
		c.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", contentTypes[".json"])
	serveKept(w, r, b, `"`+c.assets.digest+`"`, "no-cache")
}

func serveKept(w http.ResponseWriter, r *http.Request, b []byte, etag, cache string) {
	w.Header().Set("Etag", etag)
	w.Header().Set("Cache-Control", cache)
	if known := strings.Split(r.Header.Get("If-None-Match"), ","); slices.ContainsFunc(known, func(s string) bool {
		return strings.TrimPrefix(strings.TrimSpace(s), "W/") == etag
	}) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(b)
}

// routes says what there is. A wrong method is answered by the mux (405).
func (c *console) routes() {
	c.mux.HandleFunc("GET /{$}", c.page)
	c.mux.HandleFunc("GET /assets/{digest}/{file...}", c.asset)
	c.mux.HandleFunc("GET /api/openapi.json", c.openapi)
	c.mux.HandleFunc("GET /api/meta", c.read(c.meta))
	c.mux.HandleFunc("GET /api/overview", c.read(c.queried(c.overview)))
	c.mux.HandleFunc("GET /api/workers", c.read(c.workers))
	c.mux.HandleFunc("GET /api/executions", c.read(c.queried(c.executions)))
	c.mux.HandleFunc("GET /api/executions/{id}", c.read(c.execution))
	c.mux.HandleFunc("GET /api/executions/{id}/plan", c.read(c.plan))
	c.mux.HandleFunc("POST /api/executions/{id}/act", write(c, c.act))
	c.mux.HandleFunc("POST /api/executions/{id}/signal", write(c, c.signal))
	c.mux.HandleFunc("POST /api/bulk", write(c, c.bulk))
	c.mux.HandleFunc("POST /api/pause", write(c, c.pause))
}
