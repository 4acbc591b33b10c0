from tests.support.push.fixtures import pusher, receiver
