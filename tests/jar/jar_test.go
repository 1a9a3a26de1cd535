// Package jar checks what is in the shim's jar: it lies in lib/ beside every job of a cluster, so it
// must not bring anything that could get in their way.
package jar

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// jars are the shim's, with the class path of the tests of the same Flink line.
var jars = map[string]string{
	"../../dist/flinkndb-flink-2.jar":    "../../build/test-classpath.txt",
	"../../dist/flinkndb-flink-1.20.jar": "../../build/test-classpath-1.20.txt",
}

const (
	// java11 is the class file version of Java 11.
	java11 = 55
)

func open(t *testing.T, jar string) *zip.ReadCloser {
	t.Helper()
	r, err := zip.OpenReader(jar)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is missing: make build", jar)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // only read from
	return r
}

func TestContents(t *testing.T) {
	for jar := range jars {
		t.Run(filepath.Base(jar), func(t *testing.T) { testContents(t, jar) })
	}
}

func testContents(t *testing.T, jar string) {
	services := 0
	for _, f := range open(t, jar).File {
		switch ext := filepath.Ext(f.Name); {
		case ext == ".class":
			if !strings.HasPrefix(f.Name, "org/flinkndb/") {
				t.Errorf("%s is outside of org/flinkndb", f.Name)
			}
			checkClass(t, f)
		case ext == ".so", ext == ".dll", ext == ".dylib", ext == ".jnilib":
			t.Errorf("%s is a native library", f.Name)
		case strings.HasPrefix(f.Name, "META-INF/services/"):
			services++
		}
	}
	if services == 0 {
		t.Error("no META-INF/services: Flink would not find the ndb:// file system")
	}
}

func checkClass(t *testing.T, f *zip.File) {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // only read from
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatalf("%s: %v", f.Name, err)
	}
	if version := binary.BigEndian.Uint16(head[6:]); version > java11 {
		t.Errorf("%s has class file version %d, at most %d is allowed", f.Name, version, java11)
	}
}

// TestLoadsWithoutFlags loads the client in a JVM without any flag, beside another Arrow, protobuf and
// gRPC on the class path, whose classes must stay their own.
func TestLoadsWithoutFlags(t *testing.T) {
	for jar, classpath := range jars {
		t.Run(filepath.Base(jar), func(t *testing.T) { testLoads(t, jar, classpath) })
	}
}

func testLoads(t *testing.T, jarFile, classpathFile string) {
	open(t, jarFile)
	classpath, err := os.ReadFile(classpathFile)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is missing: gradle writeTestClasspath", classpathFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "Beside.java")
	if err := os.WriteFile(source, []byte(besideProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	var others []string
	for _, entry := range strings.Split(strings.TrimSpace(string(classpath)), ":") {
		if strings.HasSuffix(entry, ".jar") {
			others = append(others, entry)
		}
	}
	jar, err := filepath.Abs(jarFile)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("java", "-cp", jar+":"+strings.Join(others, ":"), source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
}

// besideProgram asks our client for a server that is not there, which takes it through gRPC, Netty and
// protobuf, and uses the user's own gRPC, protobuf and Arrow in between.
const besideProgram = `
import java.time.Duration;
import org.apache.flink.configuration.Configuration;

public class Beside {
    public static void main(String[] args) throws Exception {
        Configuration config = new Configuration();
        config.setString("state.backend.ndb.address", "127.0.0.1:1");
        config.setString("state.backend.ndb.connect-timeout", "1 s");
        org.flinkndb.config.NdbSettings settings = org.flinkndb.config.NdbSettings.fromConfig(config);
        io.grpc.ManagedChannel theirs = io.grpc.ManagedChannelBuilder.forTarget("localhost:1").usePlaintext().build();
        org.apache.arrow.vector.types.pojo.Schema schema = new org.apache.arrow.vector.types.pojo.Schema(java.util.List.of());
        com.google.protobuf.ByteString text = com.google.protobuf.ByteString.copyFromUtf8("theirs");
        try {
            org.flinkndb.client.StateSessions.open(
                    settings,
                    new org.flinkndb.client.OpenSpec("00", "job", "operator", "attempt", 1, 0, 0),
                    org.flinkndb.client.SessionListener.none());
            throw new AssertionError("there should be no server");
        } catch (org.flinkndb.client.StateSessionException e) {
            if (!e.getMessage().contains("state.backend.ndb.address")) {
                throw new AssertionError("the message does not name the key: " + e.getMessage());
            }
        }
        theirs.shutdownNow();
        if (!text.toStringUtf8().equals("theirs") || !schema.getFields().isEmpty()) {
            throw new AssertionError(text);
        }
        for (Class<?> their : new Class<?>[] {schema.getClass(), text.getClass(), theirs.getClass()}) {
            if (their.getProtectionDomain().getCodeSource().getLocation().getPath().contains("flinkndb")) {
                throw new AssertionError(their + " comes from our jar");
            }
        }
    }
}
`
