// A member of a group by @platformatic/kafka or KafkaJS: says what it does and does as told, as `member_process.py` has it.
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'

const [name, address, group, topic, told] = process.argv.slice(2)
const options = JSON.parse(told)
const OFTEN_MS = 100
const MOMENT_MS = 50

// What the member has read: partition -> next offset.
const done = new Map()

function complain (error) {
  console.log('error', error.constructor.name, String(error.message).replaceAll('\n', ' '))
}

class Platformatic {
  async subscribe () {
    const { Consumer } = await import('@platformatic/kafka')
    this.consumer = new Consumer({
      clientId: options.client_id ?? 'platformatic',
      groupId: group,
      bootstrapBrokers: [address],
      autocommit: false,
      maxWaitTime: 500,
      ...(options.group_protocol === 'consumer' ? { groupProtocol: 'consumer' } : {}),
      ...(options.session_timeout_ms ? { sessionTimeout: options.session_timeout_ms } : {}),
      ...(options.heartbeat_interval_ms ? { heartbeatInterval: options.heartbeat_interval_ms } : {}),
      ...(options.rebalance_timeout_ms ? { rebalanceTimeout: options.rebalance_timeout_ms } : {}),
      ...(options.group_instance_id ? { groupInstanceId: options.group_instance_id } : {})
    })
    this.consumer.on('error', complain)
    this.consumer.on('consumer:heartbeat:error', ({ error }) => console.error('ERROR heartbeat', error))
    this.stream = await this.consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest' })
    this.stream.on('data', record => done.set(record.partition, record.offset + 1n))
    this.stream.on('error', complain)
  }

  owned () {
    return (this.consumer.assignments ?? []).filter(each => each.topic === topic).flatMap(each => each.partitions)
  }

  async commit (offsets) {
    const rows = offsets.map(([partition, offset]) => ({ topic, partition, offset, leaderEpoch: -1 }))
    await this.consumer.commit({ offsets: rows })
  }

  async close () {
    await this.consumer.close(true)
  }
}

class KafkaJS {
  async subscribe () {
    const kafkajs = (await import('kafkajs')).default
    const kafka = new kafkajs.Kafka({ clientId: options.client_id ?? 'kafkajs', brokers: [address], logLevel: kafkajs.logLevel.WARN })
    this.consumer = kafka.consumer({
      groupId: group,
      maxWaitTimeInMs: 500,
      ...(options.session_timeout_ms ? { sessionTimeout: options.session_timeout_ms } : {}),
      ...(options.heartbeat_interval_ms ? { heartbeatInterval: options.heartbeat_interval_ms } : {})
    })
    this.partitions = []
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events
    this.consumer.on(GROUP_JOIN, ({ payload }) => { this.partitions = payload.memberAssignment[topic] ?? [] })
    this.consumer.on(REBALANCING, () => { this.partitions = [] })
    this.consumer.on(CRASH, ({ payload }) => complain(payload.error))
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => { done.set(partition, BigInt(message.offset) + 1n) }
    })
  }

  owned () {
    return this.partitions
  }

  async commit (offsets) {
    await this.consumer.commitOffsets(offsets.map(([partition, offset]) => ({ topic, partition, offset: `${offset}` })))
  }

  async close () {
    await this.consumer.disconnect()
    this.partitions = []
  }
}

const words = []
createInterface({ input: process.stdin }).on('line', line => words.push(line.trim()))

async function work (member) {
  let held = ''
  let committed = ''
  let committedAt = 0
  let isOften = false
  let isMember = true
  while (true) {
    const word = words.shift()
    if (word === 'close' || word === 'leave') {
      if (isMember) await member.close()
      isMember = false
      if (word === 'close') return
    } else if (word === 'return') {
      await member.subscribe()
      isMember = true
    } else if (word) {
      isOften = word === 'often'
    }
    const owned = isMember ? [...member.owned()].sort((one, other) => one - other) : []
    const listed = owned.map(each => ` ${topic}-${each}`).join('')
    if (listed !== held) console.log(`held${listed}`)
    held = listed
    const offsets = owned.filter(each => done.has(each)).map(each => [each, done.get(each)])
    const places = offsets.map(([partition, offset]) => ` ${partition}:${offset}`).join('')
    if (places && (places !== committed || (isOften && Date.now() - committedAt >= OFTEN_MS))) {
      committed = places
      committedAt = Date.now()
      try {
        await member.commit(offsets)
        console.log(`committed${places}`)
      } catch (error) {
        complain(error)
      }
    } else {
      await pause(MOMENT_MS)
    }
  }
}

const member = name === 'kafkajs' ? new KafkaJS() : new Platformatic()
try {
  await member.subscribe()
  await work(member)
  console.log('closed')
  process.exit(0)
} catch (error) {
  complain(error)
  process.exit(1)
}
