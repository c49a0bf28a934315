// Serves an S3-compatible store in memory, on a free port of loopback, for tests.
//
// Prints its address, and then a line for each request: method, status, path, query, If-None-Match.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// unchunk takes the signatures of chunks, and the trailer, off a body in the content encoding aws-chunked.
func unchunk(body io.Reader) ([]byte, error) {
	from, whole := bufio.NewReader(body), []byte{}
	for {
		head, err := from.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseInt(strings.TrimSpace(strings.Split(head, ";")[0]), 16, 64)
		if err != nil || size == 0 {
			return whole, err
		}
		chunk := make([]byte, size+2)
		if _, err := io.ReadFull(from, chunk); err != nil {
			return nil, err
		}
		whole = append(whole, chunk[:size]...)
	}
}

func main() {
	backend := s3mem.New()
	for _, bucket := range os.Args[1:] {
		if err := backend.CreateBucket(bucket); err != nil {
			log.Fatal(err)
		}
	}
	store := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	var lines sync.Mutex
	log.Fatal(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
			whole, err := unchunk(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(whole))
			r.ContentLength = int64(len(whole))
			r.Header.Set("Content-Length", strconv.Itoa(len(whole)))
			r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
			r.Header.Del("Content-Encoding")
		}
		answer := &statusWriter{w, http.StatusOK}
		store.ServeHTTP(answer, r)
		lines.Lock()
		defer lines.Unlock()
		fmt.Printf("%s %d %s ?%s %s\n", r.Method, answer.status, r.URL.Path, r.URL.RawQuery, r.Header.Get("If-None-Match"))
	})))
}
