"""`agent.yaml`: what is taken, what is refused, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import ConfigError
from runner.kits import agent
from runner.kits.agent import NOT_BUILT, AgentFile, default_agent, foreign_model_urls, load, load_folder


@pytest.fixture
def file(tmp_path):
    return tmp_path / "agent.yaml"


@pytest.fixture
def read(file):
    def reader(text: str | bytes, **environ: str) -> AgentFile:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(file, environ)

    return reader


@pytest.fixture
def refused(read, file):
    def refusal(text: str | bytes, **environ: str) -> str:
        with pytest.raises(ConfigError) as error:
            read(text, **environ)
        assert error.value.exit_code == 2
        return str(error.value)

    return refusal


class TestProviders:
    @pytest.mark.parametrize(
        ("provider", "urls"),
        [
            ("llmman", ("http://127.0.0.1:17434/v1", "http://host.docker.internal:17434/v1")),
            ("ollama", ("http://127.0.0.1:11434/v1", "http://host.docker.internal:11434/v1")),
            ("llamacpp", ("http://127.0.0.1:8080/v1", "http://host.docker.internal:8080/v1")),
            ("dmr", ("http://127.0.0.1:12434/engines/v1", "http://host.docker.internal:12434/engines/v1")),
            ("openai", ("https://api.openai.com/v1",)),
            ("demo", ()),
        ],
    )
    def test_each_has_its_default_urls(self, read, provider, urls):
        assert read(f"provider: {provider}").to_wire().urls == urls

    def test_a_base_url_on_the_loopback_falls_back_to_the_same_port_of_the_host(self, read):
        found = read("baseUrl: http://localhost:9999/v1/").urls
        assert found == ("http://localhost:9999/v1", "http://host.docker.internal:9999/v1")

    def test_another_base_url_has_no_fallback_but_the_one_written(self, read):
        assert read("baseUrl: https://models.example/v1").urls == ("https://models.example/v1",)
        both = read("baseUrl: https://models.example/v1\nfallback: http://127.0.0.1:8080/v1")
        assert both.urls == ("https://models.example/v1", "http://127.0.0.1:8080/v1")

    def test_only_openai_reads_a_key_from_the_hosts_environment(self, read):
        assert read("provider: openai").provider.key == "OPENAI_API_KEY"
        assert read("provider: ollama").provider.key == ""

    def test_an_unknown_one_is_refused_with_the_allowed(self, refused):
        message = refused("provider: olama")
        assert "did you mean ollama?" in message
        assert "llmman, ollama, llamacpp, dmr, openai, demo" in message


class TestForeignModelUrls:
    def test_a_known_providers_port_on_the_loopback_or_the_host_passes(self, read):
        for text in ("{}", "provider: ollama", "provider: llmman\nbaseUrl: http://[::1]:11434/v1"):
            assert foreign_model_urls(read(text)) == []

    @pytest.mark.parametrize(
        "url",
        [
            "http://127.0.0.1:9999/v1",
            "http://127.0.0.1/v1",
            "https://models.example/v1",
            "http://models.example:11434/v1",
            "http://10.0.0.1:8080/v1",
            "http://127.0.0.1.evil.example:8080/v1",
            "http://host.docker.internal.evil.example:8080/v1",
            "http://169.254.169.254:8080/v1",
        ],
    )
    def test_any_other_is_for_the_user_to_grant(self, read, url):
        assert url in foreign_model_urls(read(f"baseUrl: {url}\nfallback: http://127.0.0.1:8080/v1"))

    def test_a_hosted_service_too(self, read):
        assert foreign_model_urls(read("provider: openai")) == ["https://api.openai.com/v1"]


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "ftp://x/v1",
            "localhost:8080",
            "http://",
            "http://x:0/v1",
            "http://x:99999/v1",
            "http://u:p@x/v1",
            "http://x/?a=b",
            "''",
        ],
    )
    def test_what_is_no_plain_http_url_is_refused(self, refused, url):
        assert "agent.yaml: baseUrl: " in refused(f"baseUrl: {url}")


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("500ms", 0.5), ("5s", 5), ("3m", 180), ("1h", 3600), ("7", 7), ("0.5", 0.5), ("1.5m", 90)],
    )
    def test_units_and_plain_seconds(self, read, text, seconds):
        assert read(f"watchdogTimeout: {text}").to_wire().watchdog_timeout == seconds

    @pytest.mark.parametrize(
        "text", ["0", "0s", "-5s", "-1", "5x", "soon", "true", ".inf", ".nan", "[5]", "''", "5 s m"]
    )
    def test_what_is_not_positive_is_refused_with_the_allowed(self, refused, text):
        message = refused(f"firstTokenTimeout: {text}")
        assert "agent.yaml: firstTokenTimeout: " in message
        assert "500ms, 5s, 3m" in message

    def test_the_defaults_are_three_minutes(self, read):
        wire = read("{}").to_wire()
        assert (wire.first_token_timeout, wire.watchdog_timeout) == (180, 180)


class TestKeys:
    def test_an_unknown_key_is_refused_with_the_near_one_and_the_line(self, refused, file):
        message = refused("provider: llmman\nmaxTurn: 3\n")
        assert message.startswith(f"[config error: {file}: maxTurn: unknown key 'maxTurn'; did you mean maxTurns?")
        assert "(line 2)" in message

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("yolo: 'yes'", "yolo: must be true or false, not 'yes'"),
            ("yolo: yes", "yolo: must be true or false, not 'yes'"),
            ("maxTurns: 1.5", "maxTurns: must be a whole number"),
            ("maxTurns: true", "maxTurns: must be a whole number"),
            ("maxTurns: 0", "maxTurns: must be at least 1, not 0"),
            ("model: 3", "model: must be a text, not 3"),
            ("sampling: 3", "sampling: must be a mapping, not 3"),
            ("sampling: {temperature: hot}", "`temperature` must be a number from 0 to 10, not 'hot'"),
            ("sampling: {temprature: 1}", "did you mean temperature?"),
            ("sampling: {messages: []}", "`messages` is set by the agent loop itself"),
            ("structuredOutput: {a: .nan}", "structuredOutput: holds what JSON cannot say"),
            ("permissions: never", "permissions: 'never' is not allowed; allowed: ask"),
        ],
    )
    def test_a_wrong_value_is_refused_with_what_is_meant(self, refused, text, said):
        assert said in refused(text)

    def test_a_key_without_a_value_counts_as_not_written(self, read):
        assert read("model:\nprovider: ollama").to_wire().model == ""

    def test_a_servers_own_sampling_keys_pass_as_they_are(self, read):
        assert read("sampling: {mirostat: 2, stop: ['x']}").to_wire().sampling == {"mirostat": 2, "stop": ["x"]}

    def test_the_same_key_twice_is_refused(self, refused):
        assert "twice" in refused("hooks:\n  preToolCall: [{command: a}]\nhooks:\n  preToolCall: []\n")

    @pytest.mark.parametrize("key", NOT_BUILT)
    def test_what_is_not_built_yet_is_taken_with_one_warning_that_names_it(self, read, key):
        value = {
            "structuredOutput": "{type: object}",
            "consent": "{allow: [x]}",
            "skillsDir": "skills",
            "context": "notes.md",
        }.get(key, "true")
        warnings = read(f"{key}: {value}").warnings
        assert [w for w in warnings if f"`{key}`" in w] == list(warnings)
        assert len(warnings) == 1

    @pytest.mark.parametrize("key", ["editTools", "planTool", "fetchContentTool", "askUserTool", "agentsMd", "trace"])
    def test_false_for_what_is_not_built_is_no_warning(self, read, key):
        assert read(f"{key}: false").warnings == ()

    def test_the_bash_tool_can_be_switched_off(self, read):
        assert "bash" not in read("bashTool: false").to_wire().tools
        assert read("{}").to_wire().tools[0] == "bash"


class TestYoloAndTrace:
    def test_yolo_is_on_unless_written(self, read):
        assert read("{}").to_wire().yolo is True
        assert read("yolo: false").to_wire().yolo is False

    def test_permissions_ask_is_the_deprecated_way_to_say_yolo_false(self, read):
        found = read("permissions: ask\nyolo: true")
        assert found.to_wire().yolo is False
        assert "deprecated" in found.warnings[0]

    @pytest.mark.parametrize(
        ("text", "value"), [("0", False), ("false", False), ("1", True), ("YES", True), ("off", False)]
    )
    def test_the_environment_overrides(self, read, text, value):
        assert read(f"yolo: {str(not value).lower()}", AGENT_YOLO=text).to_wire().yolo is value
        assert read("{}", AGENT_TRACE=text).to_wire().trace is value

    def test_an_empty_variable_says_nothing(self, read):
        assert read("yolo: false", AGENT_YOLO="").to_wire().yolo is False

    def test_anything_else_is_refused_by_the_variables_name(self, refused):
        assert "AGENT_YOLO: 'maybe' is not allowed; allowed: 1, true" in refused("{}", AGENT_YOLO="maybe")


class TestBadFiles:
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "is empty"),
            (b"# only a comment\n", "is empty"),
            (b"\x00\x01\x02", "is not text"),
            (b"\x89PNG\r\n", "is not text"),
            ("provider: x".encode("utf-16"), "UTF-8"),
            (b"- a\n", "must be a mapping"),
            (b"text\n", "must be a mapping"),
            (b"hooks:\n\tpreToolCall: []\n", "tab"),
            (b"a: [1\n", "not YAML"),
            (b"x: " + b"a" * 2_000_000, "too large"),
            (b"a: &a [*a]\n", "holds itself"),
            (b"model: !!python/object:os.system x\n", "is not read"),
            (b"---\na: 1\n---\nb: 2\n", "second document"),
        ],
        ids=lambda v: v[:20] if isinstance(v, bytes) else v,
    )
    def test_each_is_named_with_what_is_wrong(self, refused, file, content, said):
        message = refused(content)
        assert str(file) in message
        assert said in message

    def test_a_missing_file_and_a_folder_in_its_place(self, tmp_path):
        for path in (tmp_path / "agent.yaml", tmp_path):
            with pytest.raises(ConfigError) as error:
                load(path)
            assert str(path) in str(error.value)

    def test_a_mark_of_utf_8_is_skipped(self, read):
        assert read(b"\xef\xbb\xbfmodel: m\n").to_wire().model == "m"


class TestDefaultAgent:
    def test_a_kit_without_agent_yaml_gets_llmman_and_the_first_listed_model_and_is_told(self, tmp_path):
        found = load_folder(tmp_path)
        assert (found.to_wire().provider, found.to_wire().model) == ("llmman", "")
        assert "default agent" in found.warnings[0]

    def test_a_link_to_nowhere_is_an_error_not_a_default(self, tmp_path):
        (tmp_path / "agent.yaml").symlink_to("/nowhere")
        with pytest.raises(ConfigError):
            load_folder(tmp_path)

    def test_the_environment_counts_for_it_too(self):
        assert default_agent({"AGENT_YOLO": "0"}).to_wire().yolo is False


def test_the_wire_carries_what_was_written(read):
    wire = read("model: m\nmaxTurns: 7\nsystem: be brief\nsampling: {temperature: 0.2, max_tokens: 99}\n").to_wire()
    assert (wire.model, wire.max_turns, wire.system) == ("m", 7, "be brief")
    assert wire.sampling == {"temperature": 0.2, "max_tokens": 99}


def test_every_key_that_is_not_built_is_a_key(read):
    aliases = {field.alias or name for name, field in agent.AgentSpec.model_fields.items()}
    assert set(NOT_BUILT) <= aliases


def test_the_demo_models_url_is_given_when_it_runs(read):
    wire = read("provider: demo").to_wire(urls=["http://127.0.0.1:5/v1/"], model="scripted")
    assert (wire.urls, wire.model) == (("http://127.0.0.1:5/v1",), "scripted")


def test_paths_are_pathlib(tmp_path):
    assert load_folder(Path(tmp_path)).path is None
