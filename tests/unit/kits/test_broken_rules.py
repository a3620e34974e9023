"""Every rule of the grammar, broken once: what is said, and where."""

from __future__ import annotations

import time

import pytest

from runner.errors import ConfigError
from runner.kits.load import load_kit
from runner.kits.validate import validate

MIXIN = 'schemaVersion: "2"\nkind: mixin\nname: broken\n'
SANDBOX = 'schemaVersion: "2"\nkind: sandbox\nname: broken\nsandbox:\n  image: debian\n'
OLD = 'schemaVersion: "1"\nkind: mixin\nname: broken\n'
OLD_AGENT = 'schemaVersion: "1"\nkind: agent\nname: broken\nagent:\n  image: debian\n'
CREDENTIAL = MIXIN + "credentials:\n  - service: acme\n"
API_KEY = CREDENTIAL + "    apiKey:\n      name: KEY\n      inject:\n        - domain: a.example.org\n"
OAUTH = CREDENTIAL + "    oauth:\n      tokenEndpoint: {host: a.example.org, path: /t}\n"
SENTINELS = "      sentinels: {accessToken: a, refreshToken: r}\n"
ARGS = MIXIN + "args:\n"


def allow(entry: str) -> str:
    return MIXIN + f"permissions:\n  network:\n    allow:\n      - {entry}\n"


def variable(name: str) -> str:
    return MIXIN + f"environment:\n  variables:\n    {name}: x\n"


BROKEN = {
    # name: spec, line, column, message
    "no schema": ("kind: mixin\nname: broken\n", 1, 1, "schemaVersion: is required"),
    "a misspelt schema": (
        "schemaversion: '2'\nkind: mixin\n",
        1,
        1,
        "schemaVersion: is required; there is 'schemaversion'",
    ),
    "schema 3": ("schemaVersion: '3'\nkind: mixin\n", 1, 16, 'schemaVersion: \'3\' is not read here, only "1" and "2"'),
    "the schema is a list": ("schemaVersion: [2]\n", 1, 16, "schemaVersion: that is not read here"),
    "no kind": ("schemaVersion: '2'\nname: broken\n", 1, 1, "kind: is required"),
    "an unknown kind": (
        "schemaVersion: '2'\nkind: banana\nname: x\n",
        2,
        7,
        "kind: 'banana' is none of 'sandbox', 'mixin'",
    ),
    "kind agent in schema 2": ("schemaVersion: '2'\nkind: agent\nname: x\n", 2, 7, "kind: 'agent' is none of"),
    "no name": ("schemaVersion: '2'\nkind: mixin\n", 1, 1, "name: is required"),
    "a name in capitals": ("schemaVersion: '2'\nkind: mixin\nname: Tool\n", 3, 7, "name: 'Tool' is not a kit name"),
    "a name that walks": ("schemaVersion: '2'\nkind: mixin\nname: ../x\n", 3, 7, "name: '../x' is not a kit name"),
    "a name that ends in a hyphen": ("schemaVersion: '2'\nkind: mixin\nname: x-\n", 3, 7, "'x-' is not a kit name"),
    "a name of 65": (f"schemaVersion: '2'\nkind: mixin\nname: {'x' * 65}\n", 3, 7, "at most 64"),
    "an unknown key": (MIXIN + "permisions: {}\n", 4, 1, "unknown key 'permisions'; did you mean 'permissions'?"),
    "an unknown key far from all": (
        MIXIN + "zzz: {}\n",
        4,
        1,
        "unknown key 'zzz'; known keys: agentInstructions, args,",
    ),
    "an unknown key deep down": (
        MIXIN + "setup:\n  install:\n    - comand: x\n      command: y\n",
        6,
        7,
        "unknown key 'comand' in setup.install[0]; did you mean 'command'?",
    ),
    "a licence twice": (MIXIN + "licenses: [MIT, MIT]\n", 4, 17, "licenses[1]: 'MIT' is here twice; first at line 4"),
    "an empty licence": (MIXIN + "licenses: ['']\n", 4, 12, "licenses[0]: must not be empty"),
    "licences as text": (MIXIN + "licenses: MIT\n", 4, 11, "licenses: must be a list, not text"),
    "a locked path of no form": (MIXIN + "locked: [a..b]\n", 4, 10, "locked[0]: 'a..b' is not a dotted path"),
    "a locked path twice": (MIXIN + "locked: [a.b, a.b]\n", 4, 15, "locked[1]: 'a.b' is here twice"),
    "a list for text": (MIXIN + "description: [a]\n", 4, 14, "description: must be text, not a list"),
    "an argument's name": (ARGS + "  a.b: {default: x}\n", 5, 3, "args: 'a.b' is not an argument name"),
    "an argument with neither": (
        ARGS + "  a: {description: x}\n",
        5,
        3,
        "args.a: needs either a default or required: true",
    ),
    "an argument with both": (
        ARGS + "  a: {default: x, required: true}\n",
        5,
        29,
        "an argument with a default is never required",
    ),
    "an argument with enum and pattern": (
        ARGS + "  a: {default: x, enum: [x], pattern: x}\n",
        5,
        39,
        "args.a.pattern: enum and pattern exclude each other",
    ),
    "a default outside its enum": (
        ARGS + "  a: {default: x, enum: [y, z]}\n",
        5,
        16,
        "args.a.default: 'x' is not one of 'y', 'z'",
    ),
    "a default that matches in part": (
        ARGS + "  a: {default: v12, pattern: '[0-9]+'}\n",
        5,
        16,
        "args.a.default: 'v12' does not match the pattern '[0-9]+'",
    ),
    "a pattern that is none": (
        ARGS + "  a: {default: x, pattern: '(x'}\n",
        5,
        28,
        "is not a regular expression: a '(' is not closed",
    ),
    "a pattern that looks around": (ARGS + "  a: {default: x, pattern: '(?=x)'}\n", 5, 28, "look-around"),
    "an enum with a repetition": (
        ARGS + "  a: {default: x, enum: [x, x]}\n",
        5,
        29,
        "args.a.enum[1]: 'x' is here twice",
    ),
    "an undeclared argument": (
        ARGS + "  version: {default: '1'}\ndescription: ${{ kit.args.verson }}\n",
        6,
        14,
        "the argument 'verson' is not declared under 'args'; did you mean 'version'?",
    ),
    "an argument inside args": (
        ARGS + "  a: {default: '${{ kit.args.b }}'}\n  b: {default: x}\n",
        5,
        16,
        "cannot be used inside 'args'",
    ),
    "a sandbox without its block": ("schemaVersion: '2'\nkind: sandbox\nname: x\n", 1, 1, "sandbox: is required"),
    "a sandbox without an image": (
        "schemaVersion: '2'\nkind: sandbox\nname: x\nsandbox: {}\n",
        4,
        10,
        "sandbox.image: is required",
    ),
    "an image with a blank": (
        "schemaVersion: '2'\nkind: sandbox\nname: x\nsandbox: {image: a b}\n",
        4,
        18,
        "'a b' is not an image reference",
    ),
    "a sandbox block in a mixin": (MIXIN + "sandbox: {image: x}\n", 4, 10, "sandbox: is for kind sandbox only"),
    "a build that leaves the kit": (
        "schemaVersion: '2'\nkind: sandbox\nname: x\nsandbox:\n  build: {context: ../..}\n",
        5,
        20,
        "sandbox.build.context: the path '../..' leads out of the kit's folder",
    ),
    "a Dockerfile outside": (
        "schemaVersion: '2'\nkind: sandbox\nname: x\nsandbox:\n  build: {dockerfile: /etc/passwd}\n",
        5,
        23,
        "sandbox.build.dockerfile: the path '/etc/passwd' leads out",
    ),
    "an entrypoint as text": (SANDBOX + "  entrypoint: bash\n", 6, 15, "sandbox.entrypoint: must be a list, not text"),
    "the old entrypoint": (
        SANDBOX + "  entrypoint: {run: [x]}\n",
        6,
        15,
        "sandbox.entrypoint: must be a list, not a mapping",
    ),
    "a command as text": (SANDBOX + "  command: bash\n", 6, 12, "sandbox.command: must be a list, or a mapping"),
    "a command of another form": (SANDBOX + "  command: {tty: []}\n", 6, 13, "unknown key 'tty' in sandbox.command"),
    "negative cores": (SANDBOX + "  resources: {cpu: -1}\n", 6, 20, "sandbox.resources.cpu: must be a number of cores"),
    "cores as text": (SANDBOX + "  resources: {cpu: two}\n", 6, 20, "sandbox.resources.cpu: must be a number"),
    "memory without a size": (
        SANDBOX + "  resources: {memory: lots}\n",
        6,
        23,
        "'lots' is not a size such as 512m or 8g",
    ),
    "memory in the old spelling": (
        SANDBOX + "  resources: {memoryMB: 1}\n",
        6,
        15,
        "unknown key 'memoryMB' in sandbox.resources; did you mean 'memory'?",
    ),
    "a mixin that extends": (MIXIN + "extends: coder\n", 4, 10, "extends: is for kind sandbox only"),
    "a mixin with mixins": (MIXIN + "mixins: [node]\n", 4, 9, "mixins: is for kind sandbox only"),
    "a mixin twice": (SANDBOX + "mixins: [node, node]\n", 6, 16, "mixins[1]: 'node' is here twice"),
    "a sandbox that requires": (SANDBOX + "requires: {agent: x}\n", 6, 11, "requires: is for kind mixin only"),
    "requires without an agent": (MIXIN + "requires: {}\n", 4, 11, "requires.agent: is required"),
    "requires a list": (
        MIXIN + "requires: {agent: [a, b]}\n",
        4,
        19,
        "requires.agent: names one sandbox kit, not a list",
    ),
    "requires a name of no form": (MIXIN + "requires: {agent: A!}\n", 4, 19, "requires.agent: 'A!' is not a kit name"),
    "instructions that walk": (
        SANDBOX + "agentInstructions: {filename: ../x.md}\n",
        6,
        31,
        "'../x.md' is not a file name",
    ),
    "a URL in allow": (allow("https://a.example.org"), 7, 9, "is a URL; give the host alone, or host:port"),
    "a path in allow": (allow("a.example.org/x"), 7, 9, "is neither a host nor a network"),
    "a wildcard inside": (allow("a*.example.org"), 7, 9, "a wildcard stands only at the start"),
    "a wildcard before an address": (allow("'*.1.2.3.4'"), 7, 9, "a wildcard stands only at the start of a name"),
    "port 0": (allow("a.example.org:0"), 7, 9, "a port is a number from 1 to 65535"),
    "port 65536": (allow("a.example.org:65536"), 7, 9, "a port is a number from 1 to 65535"),
    "a port that is a word": (allow("a.example.org:https"), 7, 9, "a port is a number from 1 to 65535"),
    "a range that runs backwards": (allow("a.example.org:90-80"), 7, 9, "the range of ports runs backwards"),
    "a colon without a port": (allow("'a.example.org:'"), 7, 9, "'a.example.org:' lacks its port"),
    "a network with host bits": (allow("10.0.0.1/8"), 7, 9, "is neither a host nor a network"),
    "an address of no form": (allow("'[::g]'"), 7, 9, "holds no IPv6 address"),
    "a host with a blank": (allow("a b"), 7, 9, "'a b' is not a host"),
    "an empty label": (allow("a..b"), 7, 9, "'a..b' is not a host"),
    "a group of no form": (allow("'@Python'"), 7, 9, "'@Python' is not a group such as @python-packages"),
    "allow as text": (
        MIXIN + "permissions:\n  network:\n    allow: a.example.org\n",
        6,
        12,
        "must be a list, not text",
    ),
    "deny of no form": (
        MIXIN + "permissions: {network: {deny: ['-']}}\n",
        4,
        32,
        "permissions.network.deny[0]: '-' is not a host",
    ),
    "install hosts of no form": (
        MIXIN + "permissions: {network: {install: {allow: ['a:b']}}}\n",
        4,
        43,
        "permissions.network.install.allow[0]",
    ),
    "another permission": (MIXIN + "permissions: {filesystem: {}}\n", 4, 15, "unknown key 'filesystem' in permissions"),
    "a port without a number": (MIXIN + "ports: [{name: web}]\n", 4, 9, "ports[0].container: is required"),
    "a port of 0": (
        MIXIN + "ports: [{container: 0}]\n",
        4,
        21,
        "ports[0].container: must be a whole number from 1 to 65535",
    ),
    "a port as text": (MIXIN + "ports: [{container: '80'}]\n", 4, 21, "must be a whole number from 1 to 65535"),
    "a port of half": (MIXIN + "ports: [{container: 80.5}]\n", 4, 21, "must be a whole number from 1 to 65535"),
    "a host port": (MIXIN + "ports: [{container: 80, host: 80}]\n", 4, 25, "unknown key 'host' in ports[0]"),
    "a protocol": (MIXIN + "ports: [{container: 80, protocol: sctp}]\n", 4, 35, "'sctp' is none of 'tcp', 'udp'"),
    "a port that is no mapping": (MIXIN + "ports: [80]\n", 4, 9, "ports[0]: must be a mapping, not text"),
    "a credential without a service": (
        MIXIN + "credentials: [{description: x}]\n",
        4,
        15,
        "credentials[0].service: is required",
    ),
    "a service twice": (CREDENTIAL + "  - service: acme\n", 6, 14, "the service 'acme' is here twice"),
    "the old credentials": (
        MIXIN + "credentials: {sources: {}}\n",
        4,
        14,
        "credentials: must be a list, not a mapping",
    ),
    "an sshAgent": (CREDENTIAL + "    sshAgent: {}\n", 6, 5, "unknown key 'sshAgent' in credentials[0]"),
    "an empty apiKey": (
        CREDENTIAL + "    apiKey: {}\n",
        6,
        13,
        "credentials[0].apiKey: needs a name, inject rules, or both",
    ),
    "an apiKey's name": (CREDENTIAL + "    apiKey: {name: A-B}\n", 6, 20, "'A-B' is not a variable name"),
    "an inject without a domain": (
        CREDENTIAL + "    apiKey: {name: K, inject: [{header: x}]}\n",
        6,
        32,
        "credentials[0].apiKey.inject[0].domain: is required",
    ),
    "a format without %s": (
        API_KEY + "          format: Bearer\n",
        10,
        19,
        "the format 'Bearer' must hold %s exactly once, not 0 times",
    ),
    "a format with two": (API_KEY + "          format: '%s %s'\n", 10, 19, "must hold %s exactly once, not 2 times"),
    "format and scheme": (
        API_KEY + "          format: '%s'\n          scheme: bearer\n",
        10,
        19,
        "format and scheme exclude each other",
    ),
    "an unknown scheme": (API_KEY + "          scheme: digest\n", 10, 19, "'digest' is none of 'bearer', 'basic'"),
    "basic without a username": (API_KEY + "          scheme: basic\n", 10, 19, "scheme: basic needs a username"),
    "bearer with a username": (
        API_KEY + "          scheme: bearer\n          username: x\n",
        11,
        21,
        "goes with scheme basic only",
    ),
    "oauth without an endpoint": (
        CREDENTIAL + "    oauth:\n" + SENTINELS,
        7,
        7,
        "credentials[0].oauth.tokenEndpoint: is required",
    ),
    "an endpoint without a path": (
        CREDENTIAL + "    oauth:\n      tokenEndpoint: {host: a.example.org}\n" + SENTINELS,
        7,
        22,
        "credentials[0].oauth.tokenEndpoint.path: is required",
    ),
    "an endpoint without a host": (
        CREDENTIAL + "    oauth:\n      tokenEndpoint: {path: /t}\n" + SENTINELS,
        7,
        22,
        "credentials[0].oauth.tokenEndpoint.host: is required",
    ),
    "oauth without sentinels": (OAUTH, 7, 7, "credentials[0].oauth.sentinels: is required"),
    "one sentinel": (OAUTH + "      sentinels: {accessToken: a}\n", 8, 18, "sentinels.refreshToken: is required"),
    "a credential file without a path": (
        OAUTH + SENTINELS + "      credentialFile: {template: x}\n",
        9,
        23,
        "credentialFile.path: is required",
    ),
    "a credential file without content": (
        OAUTH + SENTINELS + "      credentialFile: {path: x}\n",
        9,
        23,
        "credentialFile: needs a template or a structure",
    ),
    "a variable's name": (variable("A-B"), 6, 5, "environment.variables: 'A-B' is not a variable name"),
    "a variable of ours": (variable("SBX_X"), 6, 5, "the variable SBX_X is the sandbox's own"),
    "a variable of Docker's": (variable("DOCKER_HOST"), 6, 5, "the variable DOCKER_HOST is the sandbox's own"),
    "a variable of DASH": (variable("DASH_X"), 6, 5, "the variable DASH_X is the sandbox's own"),
    "the variable PATH": (variable("PATH"), 6, 5, "the variable PATH is the sandbox's own"),
    "the variable HOME": (variable("HOME"), 6, 5, "the variable HOME is the sandbox's own"),
    "the variable LD_PRELOAD": (variable("LD_PRELOAD"), 6, 5, "the variable LD_PRELOAD is the sandbox's own"),
    "variables as a list": (MIXIN + "environment: {variables: [A=1]}\n", 4, 26, "must be a mapping, not a list"),
    "a variable that is a list": (
        MIXIN + "environment: {variables: {A: [1]}}\n",
        4,
        30,
        "environment.variables.A: must be text",
    ),
    "an install without a command": (
        MIXIN + "setup: {install: [{user: '0'}]}\n",
        4,
        19,
        "setup.install[0].command: is required",
    ),
    "an install command as a list": (MIXIN + "setup: {install: [{command: [a]}]}\n", 4, 29, "must be text, not a list"),
    "an empty install command": (
        MIXIN + "setup: {install: [{command: ''}]}\n",
        4,
        29,
        "setup.install[0].command: must not be empty",
    ),
    "a startup without a command": (
        MIXIN + "setup: {startup: [{user: '0'}]}\n",
        4,
        19,
        "setup.startup[0].command: is required",
    ),
    "a startup command as text": (MIXIN + "setup: {startup: [{command: ls}]}\n", 4, 29, "must be a list, not text"),
    "an empty startup command": (MIXIN + "setup: {startup: [{command: []}]}\n", 4, 29, "must not be empty"),
    "background as text": (
        MIXIN + "setup: {startup: [{command: [a], background: maybe}]}\n",
        4,
        46,
        "setup.startup[0].background: must be true or false",
    ),
    "a file without a path": (MIXIN + "setup: {files: [{content: x}]}\n", 4, 17, "setup.files[0].path: is required"),
    "a relative file": (MIXIN + "setup: {files: [{path: a/b}]}\n", 4, 24, "the path 'a/b' must be absolute"),
    "a file that walks": (MIXIN + "setup: {files: [{path: /a/../b}]}\n", 4, 24, "must not hold '..'"),
    "a placeholder of another name": (
        MIXIN + "setup: {files: [{path: /a, content: 'x ${HOME} y'}]}\n",
        4,
        37,
        "the content uses ${HOME}; only ${WORKDIR} is filled in",
    ),
    "a mode of no form": (MIXIN + "setup: {files: [{path: /a, mode: rwx}]}\n", 4, 34, "the mode 'rwx' is not octal"),
    "a mode with an 8": (MIXIN + "setup: {files: [{path: /a, mode: '0688'}]}\n", 4, 34, "the mode '0688' is not octal"),
    "a relative volume": (MIXIN + "volumes: [{path: data}]\n", 4, 18, "the path 'data' must be absolute"),
    "a volume without a path": (MIXIN + "volumes: [{size: 1g}]\n", 4, 11, "volumes[0].path: is required"),
    "a volume of a type": (MIXIN + "volumes: [{path: /a, type: nfs}]\n", 4, 28, "'nfs' is none of '', 'tmpfs'"),
    "a volume's size": (MIXIN + "volumes: [{path: /a, size: big}]\n", 4, 28, "'big' is not a size"),
    "a volume's mode": (MIXIN + "volumes: [{path: /a, mode: '9'}]\n", 4, 28, "the mode '9' is not octal"),
    "a volume twice": (MIXIN + "volumes: [{path: /a}, {path: /a}]\n", 4, 30, "/a is here twice"),
    "privileged as text": (
        MIXIN + "security: {privileged: 'true'}\n",
        4,
        24,
        "security.privileged: must be true or false",
    ),
    "another security key": (MIXIN + "security: {caps: []}\n", 4, 12, "unknown key 'caps' in security"),
    # keys of the first schema in the second
    **{
        f"{key} in schema 2": (MIXIN + f"{key}: {{}}\n", 4, 1, f'{key}: is a key of schemaVersion "1"')
        for key in (
            "agent agentContext caps commands egress kitDir memory network oauth persistence publishedPorts secrets "
            "settings tmpfs template binary runOptions aiFilename"
        ).split()
    },
    "proxyManaged in schema 2": (MIXIN + "environment: {proxyManaged: [A]}\n", 4, 15, 'is a key of schemaVersion "1"'),
    "initFiles in schema 2": (MIXIN + "setup: {initFiles: []}\n", 4, 9, 'is a key of schemaVersion "1"'),
    # keys of the second schema in the first
    **{
        f"{key} in schema 1": (OLD + f"{key}: {{}}\n", 4, 1, f'{key}: is a key of schemaVersion "2"')
        for key in ("agentInstructions", "args", "permissions", "ports", "requires", "setup")
    },
    "a flat template in schema 1": (OLD + "template: x\n", 4, 1, "template: is read only as 'sandbox.image'"),
    "an unknown key in schema 1": (OLD + "comands: {}\n", 4, 1, "unknown key 'comands'; did you mean 'commands'?"),
    "kind agent without its block": ("schemaVersion: '1'\nkind: agent\nname: x\n", 1, 1, "agent: is required"),
    "agent in an old mixin": (OLD + "agent: {image: x}\n", 4, 8, "agent: is for kind agent only"),
    "agent and sandbox": (OLD_AGENT + "sandbox: {image: x}\n", 5, 3, "agent and sandbox are the same block; keep one"),
    "an old agent without an image": (
        "schemaVersion: '1'\nkind: agent\nname: x\nagent: {aiFilename: A.md}\n",
        4,
        8,
        "agent.image: is required",
    ),
    "an old source of nothing": (
        OLD + "credentials: {sources: {a: {}}}\n",
        4,
        25,
        "credentials.sources.a: needs env or file",
    ),
    "an old file without a path": (OLD + "credentials: {sources: {a: {file: {}}}}\n", 4, 35, "file.path: is required"),
    "an old priority": (
        OLD + "credentials: {sources: {a: {env: [A], priority: x}}}\n",
        4,
        49,
        "'x' is none of 'env-first', 'file-first'",
    ),
    "an old auth without a header": (
        OLD + "network: {serviceAuth: {a: {valueFormat: '%s'}}}\n",
        4,
        28,
        "headerName: is required",
    ),
    "an old auth without %s": (
        OLD + "network: {serviceAuth: {a: {headerName: x, valueFormat: y}}}\n",
        4,
        57,
        "must hold %s exactly once",
    ),
    "a secret that is there": (
        OLD + "credentials: {sources: {acme: {env: [A]}}}\nsecrets: [ACME_TOKEN]\n",
        5,
        11,
        "'ACME_TOKEN' is the credential 'acme', which is there already",
    ),
    "egress named twice": (
        OLD + "network: {serviceDomains: {a.org: x}}\negress: {a.org: y}\n",
        5,
        10,
        "network.serviceDomains names this domain too",
    ),
    "old oauth without a service": (
        OLD + "oauth: {tokenEndpoint: {host: h, path: /p}, sentinels: {accessToken: a, refreshToken: r}}\n",
        4,
        8,
        "oauth.service: is required",
    ),
    "an old volume that is relative": (OLD + "volumes: {data: 1g}\n", 4, 11, "the path 'data' must be absolute"),
    "an old mount option": (OLD + "tmpfs: {/a: 'nodev=1'}\n", 4, 13, "'nodev=1' is not a mount option that is read"),
    "an old volume as tmpfs too": (OLD + "volumes: {/a: 1g}\ntmpfs: {/a: 1m}\n", 5, 8, "/a is a volume too"),
}


@pytest.mark.parametrize(("text", "line", "column", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_named_with_its_place(tmp_path, text, line, column, message):
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_kit(tmp_path)
    assert message in caught.value.message
    assert caught.value.place == f"{tmp_path / 'spec.yaml'}:{line}:{column}"
    assert caught.value.log is None, "one rule was broken, and one fault is told"


def test_all_faults_of_a_file_are_told_in_the_order_of_its_lines(tmp_path):
    (tmp_path / "spec.yaml").write_text(MIXIN + "zzz: 1\nports: [{container: 0}]\nlicenses: ['']\n")
    with pytest.raises(ConfigError) as caught:
        load_kit(tmp_path)
    place = tmp_path / "spec.yaml"
    assert caught.value.place == f"{place}:4:1"
    assert (caught.value.log or "").splitlines() == [
        f"{place}:5:21: ports[0].container: must be a whole number from 1 to 65535",
        f"{place}:6:12: licenses[0]: must not be empty",
    ]


@pytest.mark.parametrize("head", [MIXIN, OLD], ids=["schema 2", "schema 1"])
def test_a_file_full_of_faults_lists_some_of_them(tmp_path, head):
    (tmp_path / "spec.yaml").write_text(head + "".join(f"zz{n}: 1\n" for n in range(100)))
    with pytest.raises(ConfigError) as caught:
        load_kit(tmp_path)
    assert (caught.value.log or "").splitlines()[-1] == "and 79 more"


HOSTILE = {
    "unknown keys": MIXIN + "".join(f"zz{n}: 1\n" for n in range(20_000)),
    "open placeholders": MIXIN + "setup: {files: [{path: /a, content: '" + "${" * 400_000 + "'}]}\n",
    "injects against allows": (
        MIXIN
        + "permissions: {network: {allow: ["
        + ", ".join(f"a{n}.org" for n in range(20_000))
        + "]}}\ncredentials: [{service: s, apiKey: {inject: ["
        + ", ".join(f"{{domain: b{n}.org}}" for n in range(6_000))
        + "]}}]\n"
    ),
    "an endless name": MIXIN.replace("broken", "x" * 900_000),
    "a pattern": ARGS + "  a: {default: '" + "a" * 60_000 + "b', pattern: '(a*)*(a*)*(a*)*'}\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_spec_takes_little_time_and_little_room(tmp_path, text):
    (tmp_path / "spec.yaml").write_text(text)
    started = time.perf_counter()
    (verdict,) = validate([tmp_path])
    assert time.perf_counter() - started < 8, "seconds, on a machine that does other things too"
    assert all(len(line) < 1000 for line in verdict.errors)


def test_a_message_holds_nothing_that_a_terminal_obeys(tmp_path):
    text = (
        MIXIN
        + '"\\e[31mkey": 1\ndescription: ["\\e]0;title\\a"]\nenvironment: {variables: {"A\\e[2J": x, B: ["\\e"]}}\n'
    )
    (tmp_path / "spec.yaml").write_text(text)
    (verdict,) = validate([tmp_path])
    assert len(verdict.errors) == 4
    assert all(line.isprintable() for line in verdict.errors)
